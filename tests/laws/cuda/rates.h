// The ceilings of the device as the laws' program measures them, and the load it can be put under.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "laws/cuda/report.h"

namespace roost::laws {

std::vector<Figure> measure_bandwidth();
std::vector<Figure> measure_product_rates();

// Products on half of the multiprocessors and copies on the rest, beside what the caller runs.
class Load {
 public:
  Load();
  ~Load();
  void start();             // queues some 50 ms of work on two streams of its own
  bool is_running() const;  // whether any of it is left

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace roost::laws
