// The machine's own limits, measured: what every speed is a share of.
#pragma once

#include "device/cpu/thread_pool.h"

namespace roost {

// Bytes a second that a plain read loop on all threads of the pool reaches on a buffer far larger
// than the caches; the best of several passes.
double measure_read_bandwidth(ThreadPool& pool);

// f32 FLOP a second (2 a fused multiply-add) of independent fused multiply-adds in registers on all
// threads, with the widest vectors of this machine; the best of several passes.
double measure_fma_peak(ThreadPool& pool);

}  // namespace roost
