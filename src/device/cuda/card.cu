// The card over the CUDA runtime.
#include "device/cuda/card.h"

#include <algorithm>

#include "base/check.h"
#include "device/cuda/check.cuh"

namespace roost::cuda {

Buffer Card::take(size_t n_bytes) {
  if (n_bytes == 0) return {};
  void* data = nullptr;
  check(cudaMalloc(&data, n_bytes));
  ROOST_CHECK(data != nullptr);
  Buffer buffer(static_cast<std::byte*>(data), n_bytes, [](std::byte* taken) { cudaFree(taken); });
  clear(buffer.data(), n_bytes);
  return buffer;
}

void Card::write(std::byte* to, const void* from, size_t n_bytes) {
  if (graphs_.is_active()) return graphs_.send(to, from, n_bytes);
  const auto* next = static_cast<const std::byte*>(from);
  while (n_bytes > 0) {
    const size_t n = std::min(n_bytes, kStagingBytes);
    staging_.send(to, next, n);
    to += n;
    next += n;
    n_bytes -= n;
  }
}

void Card::clear(std::byte* to, size_t n_bytes) {
  if (n_bytes > 0) stream_.fill(to, std::byte{0}, n_bytes);
}

void Card::copy(std::byte* to, const std::byte* from, size_t n_bytes) {
  if (n_bytes > 0)
    check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice,
                          static_cast<cudaStream_t>(stream_.raw())));
}

void Card::read(void* to, const std::byte* from, size_t n_bytes) {
  if (n_bytes > 0) stream_.copy_to_host(static_cast<std::byte*>(to), from, n_bytes);
  stream_.wait();
}

size_t Card::available_bytes() const {
  size_t n_free = 0, n_all = 0;
  check(cudaMemGetInfo(&n_free, &n_all));
  return n_free;
}

const Error* Card::loss() const {
  return card_loss() ? &*card_loss() : nullptr;
}

bool has_card() {
  int n_cards = 0, major = 0;
  if (cudaGetDeviceCount(&n_cards) != cudaSuccess || n_cards == 0) return false;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major >= 8;
}

}  // namespace roost::cuda
