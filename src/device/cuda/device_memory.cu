// Owners of memory over the CUDA runtime.
#include "device/cuda/device_memory.h"

#include <algorithm>

#include "base/check.h"
#include "device/cuda/check.cuh"

namespace roost::cuda {

DeviceBuffer::DeviceBuffer(size_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = nullptr;
  check(cudaMalloc(&data, n_bytes));
  ROOST_CHECK(data != nullptr);
  data_.reset(static_cast<std::byte*>(data));
}

void DeviceBuffer::Free::operator()(std::byte* data) const {
  cudaFree(data);
}

PinnedBuffer::PinnedBuffer(size_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = nullptr;
  check(cudaMallocHost(&data, n_bytes));
  ROOST_CHECK(data != nullptr);
  data_.reset(static_cast<std::byte*>(data));
}

void PinnedBuffer::Free::operator()(std::byte* data) const {
  cudaFreeHost(data);
}

std::byte* DeviceArena::take_bytes(size_t n_bytes) {
  const size_t begin = (used_ + kAlign - 1) / kAlign * kAlign;
  ROOST_CHECK(begin + n_bytes <= buffer_.n_bytes());
  used_ = begin + n_bytes;
  used_max_ = std::max(used_max_, used_);
  return buffer_.data() + begin;
}

}  // namespace roost::cuda
