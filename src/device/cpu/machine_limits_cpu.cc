// The loops that find what this machine can do at most: reading memory, multiplying and adding.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/machine_limits_cpu.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "device/arena.h"
#include "device/cpu/machine_limits.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Ten chains: more than latency times issue width of any core that roost knows.
float multiply_add_loop(int64_t n_rounds, int64_t* n_flop) {
  const hn::ScalableTag<float> d;
  // Different starts, or the compiler sees ten equal chains and runs one.
  auto a = hn::Set(d, 1.0f), b = hn::Set(d, 1.1f), c = hn::Set(d, 1.2f), e = hn::Set(d, 1.3f),
       f = hn::Set(d, 1.4f);
  auto g = hn::Set(d, 1.5f), h = hn::Set(d, 1.6f), i = hn::Set(d, 1.7f), j = hn::Set(d, 1.8f),
       k = hn::Set(d, 1.9f);
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  for (int64_t round = 0; round < n_rounds; ++round) {
    a = hn::MulAdd(a, x, y), b = hn::MulAdd(b, x, y), c = hn::MulAdd(c, x, y),
    e = hn::MulAdd(e, x, y);
    f = hn::MulAdd(f, x, y), g = hn::MulAdd(g, x, y), h = hn::MulAdd(h, x, y),
    i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y), k = hn::MulAdd(k, x, y);
  }
  *n_flop = n_rounds * 10 * 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto sum = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)),
                           hn::Add(hn::Add(f, g), hn::Add(h, hn::Add(i, hn::Add(j, k)))));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

uint64_t read_loop(const uint64_t* data, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  const size_t l = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i + 4 * l <= n; i += 4 * l) {
    a = hn::Xor(a, hn::LoadU(d, data + i));
    b = hn::Xor(b, hn::LoadU(d, data + i + l));
    c = hn::Xor(c, hn::LoadU(d, data + i + 2 * l));
    e = hn::Xor(e, hn::LoadU(d, data + i + 3 * l));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(multiply_add_loop);
HWY_EXPORT(read_loop);

namespace {

constexpr int kPasses = 7;
constexpr size_t kReadBytes = size_t{1} << 30;  // far beyond any L3
constexpr size_t kReadPieceBytes = size_t{1} << 20;
constexpr int64_t kFmaRounds = 2'000'000;  // some 10 ms

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ReadLoop::ReadLoop(ThreadPool& pool) : pool_(pool), buffer_(kReadBytes) {}

double ReadLoop::bytes_per_second() {
  const auto* data = reinterpret_cast<const uint64_t*>(buffer_.data());
  std::atomic<uint64_t> sink{0};  // keeps the loads alive
  const double seconds = seconds_of([&] {
    pool_.parallel_for(static_cast<int64_t>(kReadBytes / kReadPieceBytes), [&](int64_t i) {
      sink ^= HWY_DYNAMIC_DISPATCH(read_loop)(data + static_cast<size_t>(i) * kReadPieceBytes / 8,
                                              kReadPieceBytes / 8);
    });
  });
  return static_cast<double>(kReadBytes) / seconds;
}

double measure_fma_peak(ThreadPool& pool) {
  std::atomic<int64_t> n_flop{0};
  std::atomic<float> sink{0};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    n_flop = 0;
    const double s = seconds_of([&] {
      pool.parallel_for(pool.n_threads(), [&](int64_t) {
        int64_t n = 0;
        sink = HWY_DYNAMIC_DISPATCH(multiply_add_loop)(kFmaRounds, &n);
        n_flop += n;
      });
    });
    best = std::max(best, static_cast<double>(n_flop.load()) / s);
  }
  return best;
}

}  // namespace roost
#endif  // HWY_ONCE
