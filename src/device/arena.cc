#include "device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace roost {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kPieceBytes = size_t{32} << 20;  // that one thread clears
constexpr size_t kThreadsMax = 8;

size_t rounded_up(size_t n, size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// The first touch of a page is work of the kernel's: several threads share it.
void clear(std::byte* data, size_t n_bytes) {
  const size_t n_pieces = (n_bytes + kPieceBytes - 1) / kPieceBytes;
  const size_t n_threads =
      std::min({n_pieces, kThreadsMax, size_t{std::thread::hardware_concurrency()}});
  if (n_threads <= 1) {
    std::fill_n(data, n_bytes, std::byte{0});
    return;
  }
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < n_threads; ++t) {
    threads.emplace_back([&] {
      for (size_t at; (at = next.fetch_add(kPieceBytes)) < n_bytes;)
        std::fill_n(data + at, std::min(kPieceBytes, n_bytes - at), std::byte{0});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Buffer::Buffer(size_t n_bytes) : n_bytes_(n_bytes) {
  if (n_bytes == 0) return;
  void* data = std::aligned_alloc(kPageBytes, rounded_up(n_bytes, kPageBytes));
  ROOST_CHECK(data != nullptr);
  data_ = {static_cast<std::byte*>(data), Free{[](std::byte* taken) { std::free(taken); }}};
#ifdef __linux__
  // Large pools are read in long runs: huge pages spare the TLB. A kernel that refuses loses
  // nothing else.
  if (n_bytes >= (size_t{4} << 20)) madvise(data, n_bytes, MADV_HUGEPAGE);
#endif
  clear(data_.get(), n_bytes);
}

Tensor Buffer::tensor(DType dtype, const Shape& shape) const {
  const Tensor view{.data = data_.get(), .dtype = dtype, .shape = shape};
  ROOST_CHECK(view.n_bytes() <= n_bytes_);
  return view;
}

std::byte* Arena::take(size_t n_bytes) {
  const size_t begin = rounded_up(used_, kAlign);
  ROOST_CHECK(begin + n_bytes <= buffer_.n_bytes());
  used_ = begin + n_bytes;
  used_max_ = std::max(used_max_, used_);
  return buffer_.data() + begin;
}

Tensor Arena::tensor(DType dtype, const Shape& shape) {
  Tensor view{.data = nullptr, .dtype = dtype, .shape = shape};
  view.data = take(view.n_bytes());
  return view;
}

}  // namespace roost
