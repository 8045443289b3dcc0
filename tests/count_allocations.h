// Counts what all threads allocate, so that a test can prove that something allocates nothing. For
// one source of a test program: it replaces the program's operator new.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace roost {
inline std::atomic<int64_t> n_allocations{0};
}  // namespace roost

// Not inlined, or g++ sees malloc's pointer reach delete and warns.
[[gnu::noinline]] void* operator new(size_t n) {
  ++roost::n_allocations;
  if (void* p = std::malloc(n)) return p;
  std::abort();
}
[[gnu::noinline]] void* operator new(size_t n, std::align_val_t alignment) {
  ++roost::n_allocations;
  const auto unit = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (n + unit - 1) / unit * unit)) return p;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
