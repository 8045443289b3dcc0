// The machine's own limits, measured: what every speed is a share of.
#pragma once

#include "device/arena.h"
#include "device/cpu/thread_pool.h"

namespace roost {

// A plain read loop on all threads of the pool, over a buffer far larger than the caches.
class ReadLoop {
 public:
  explicit ReadLoop(ThreadPool& pool);
  double bytes_per_second();  // of one pass; 20–50 ms

 private:
  ThreadPool& pool_;
  Buffer buffer_;
};

// f32 FLOP a second (2 a fused multiply-add) of independent fused multiply-adds in registers on all
// threads, with the widest vectors of this machine; the best of several passes.
double measure_fma_peak(ThreadPool& pool);

}  // namespace roost
