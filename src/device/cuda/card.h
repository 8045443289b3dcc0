// A card as a device: its memory, one queue of work, and pinned staging for what travels to it.
// No type of the CUDA runtime shows here, so that ordinary sources may include it.
#pragma once

#include <string>

#include "device/cuda/step_graphs.h"
#include "device/cuda/stream.h"
#include "device/device.h"

namespace roost::cuda {

class Card final : public Device {
 public:
  Card() : staging_(stream_, kStagingBytes), graphs_(stream_, kListBytes) {}

  Buffer take(size_t n_bytes) override;
  void write(std::byte* to, const void* from, size_t n_bytes) override;
  void clear(std::byte* to, size_t n_bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t n_bytes) override;
  void read(void* to, const std::byte* from, size_t n_bytes) override;
  void wait() override { stream_.wait(); }
  size_t available_bytes() const override;
  const Error* loss() const override;

  const Stream& stream() const { return stream_; }
  Staging& staging() { return staging_; }
  StepGraphs& graphs() { return graphs_; }

 private:
  // Lists of a step's calls, twice over, and pieces of weights on their way.
  static constexpr size_t kStagingBytes = size_t{16} << 20;
  static constexpr size_t kListBytes = size_t{16} << 20;  // of one repeated step

  Stream stream_;
  Staging staging_;
  StepGraphs graphs_;
};

bool has_card();  // that roost's kernels run on

}  // namespace roost::cuda
