// Counts what the calling thread allocates, so that a test can prove that something allocates
// nothing. For one source of a test program: it replaces the program's operator new.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace roost {
inline thread_local int64_t n_allocations = 0;
}  // namespace roost

// Not inlined, or g++ sees malloc's pointer reach delete and warns.
[[gnu::noinline]] void* operator new(size_t n) {
  ++roost::n_allocations;
  if (void* p = std::malloc(n)) return p;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
