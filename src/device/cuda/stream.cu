// Streams and staging over the CUDA runtime.
#include "device/cuda/stream.h"

#include <cstring>

#include "device/cuda/check.cuh"

namespace roost::cuda {
namespace {

constexpr size_t kAlign = 256;

cudaStream_t raw_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.raw());
}

}  // namespace

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
}

void Stream::Destroy::operator()(void* stream) const {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void Stream::wait() const {
  check(cudaStreamSynchronize(raw_of(*this)));
}

void Stream::copy_to_device(std::byte* to, const std::byte* from, size_t n_bytes) const {
  check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, raw_of(*this)));
}

void Stream::copy_to_host(std::byte* to, const std::byte* from, size_t n_bytes) const {
  check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, raw_of(*this)));
}

void Stream::fill(std::byte* to, std::byte value, size_t n_bytes) const {
  check(cudaMemsetAsync(to, static_cast<int>(value), n_bytes, raw_of(*this)));
}

Staging::Staging(const Stream& stream, size_t half_bytes)
    : stream_(stream),
      half_bytes_((half_bytes + kAlign - 1) / kAlign * kAlign),
      host_(2 * half_bytes_),
      device_(2 * half_bytes_) {
  for (auto& event : emptied_) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event.reset(made);
  }
}

void Staging::Destroy::operator()(void* event) const {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void Staging::turn() {
  check(cudaEventRecord(static_cast<cudaEvent_t>(emptied_[half_].get()), raw_of(stream_)));
  half_ = 1 - half_;
  used_ = 0;
  // Done at once when the half was never left.
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(emptied_[half_].get())));
}

size_t Staging::take(size_t n_bytes) {
  ROOST_CHECK(n_bytes <= half_bytes_);
  if (used_ + n_bytes > half_bytes_) turn();
  const size_t at = static_cast<size_t>(half_) * half_bytes_ + used_;
  used_ += (n_bytes + kAlign - 1) / kAlign * kAlign;
  return at;
}

void Staging::send(std::byte* to, const void* from, size_t n_bytes) {
  const size_t at = take(n_bytes);
  std::memcpy(host_.data() + at, from, n_bytes);
  stream_.copy_to_device(to, host_.data() + at, n_bytes);
}

const std::byte* Staging::push_bytes(const void* from, size_t n_bytes) {
  const size_t at = take(n_bytes);
  if (n_bytes == 0) return device_.data() + at;
  std::memcpy(host_.data() + at, from, n_bytes);
  stream_.copy_to_device(device_.data() + at, host_.data() + at, n_bytes);
  return device_.data() + at;
}

std::string card_name() {
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDevice(&device));
  check(cudaGetDeviceProperties(&properties, device));
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor);
}

}  // namespace roost::cuda
