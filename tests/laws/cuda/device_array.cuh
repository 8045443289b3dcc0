// Device memory of one type for the law programs: owns it, fills it from a vector and reads it
// back.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/cuda/check.cuh"

namespace roost::laws {

struct FreeDevice {
  void operator()(void* p) const { cuda::check(cudaFree(p)); }
};

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) {
    void* p = nullptr;
    cuda::check(cudaMalloc(&p, n * sizeof(T)));
    data_.reset(static_cast<T*>(p));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    cuda::check(cudaMemcpy(data(), host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    // A copy from pageable memory may return early, and the reader may be on another stream.
    cuda::check(cudaDeviceSynchronize());
  }

  T* data() const { return data_.get(); }
  size_t size() const { return n_; }

  // Waits for everything running on the device.
  std::vector<T> read() const {
    std::vector<T> host(n_);
    cuda::check(cudaDeviceSynchronize());
    cuda::check(cudaMemcpy(host.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  size_t n_;
  std::unique_ptr<T, FreeDevice> data_;
};

}  // namespace roost::laws
