#include "device/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace roost {
namespace {

// A worker spins this many rounds for its next task before it sleeps: longer than the gap between
// two ops of a step (microseconds), shorter than a user notices as load.
constexpr int kSpinRounds = 20'000;

// A thread claims 1 / (kClaimsLeft · threads) of the items left, and at least 1 / (kClaimsMax ·
// threads) of all: long runs first, since neighbouring items read neighbouring memory; short ones
// at the end, so that all end together.
constexpr int64_t kClaimsLeft = 2, kClaimsMax = 64;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
#endif
  if (cpus.empty()) {
    const int n = static_cast<int>(std::thread::hardware_concurrency());
    for (int cpu = 0; cpu < (n > 0 ? n : 1); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(int cpu) {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);  // a container that forbids it loses only the pinning
#else
  (void)cpu;
#endif
}

}  // namespace

int n_usable_cpus() {
  return static_cast<int>(usable_cpus().size());
}

// One task at a time. The caller publishes it by raising `generation`; every worker takes part in
// every generation and reports through `n_done`, so a task's memory outlives its last reader.
struct ThreadPool::Shared {
  alignas(64) std::atomic<uint64_t> generation{0};
  alignas(64) std::atomic<int64_t> next_item{0};
  alignas(64) std::atomic<int> n_done{0};
  alignas(64) std::atomic<int> n_asleep{0};
  Function function = nullptr;
  const void* context = nullptr;
  int64_t n_items = 0;
  bool is_stopping = false;

  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;

  void work(int thread) {
    const int64_t n_threads = static_cast<int64_t>(workers.size()) + 1;
    const int64_t n_min = std::max<int64_t>(1, n_items / (kClaimsMax * n_threads));
    int64_t begin = next_item.load(std::memory_order_relaxed);
    while (begin < n_items) {
      const int64_t n =
          std::min(n_items - begin, std::max(n_min, (n_items - begin) / (kClaimsLeft * n_threads)));
      if (!next_item.compare_exchange_weak(begin, begin + n, std::memory_order_relaxed)) continue;
      for (int64_t i = begin; i < begin + n; ++i) function(context, i, thread);
      begin = next_item.load(std::memory_order_relaxed);
    }
  }

  uint64_t wait_beyond(uint64_t seen) {
    for (int round = 0; round < kSpinRounds; ++round) {
      const uint64_t g = generation.load(std::memory_order_acquire);
      if (g != seen) return g;
      relax();
    }
    std::unique_lock lock(mutex);
    n_asleep.fetch_add(1);
    wake.wait(lock, [&] { return generation.load() != seen; });
    n_asleep.fetch_sub(1);
    return generation.load();
  }

  void worker_loop(int thread, int cpu) {
    pthread_setname_np(pthread_self(), "roost-kernels");
    if (cpu >= 0) pin_to(cpu);
    uint64_t seen = 0;
    for (;;) {
      seen = wait_beyond(seen);
      if (is_stopping) return;
      work(thread);
      n_done.fetch_add(1, std::memory_order_release);
    }
  }

  void publish() {
    generation.fetch_add(1);
    if (n_asleep.load() > 0) {
      const std::lock_guard lock(mutex);
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads), shared_(std::make_unique<Shared>()) {
  ROOST_CHECK(n_threads >= 1);
  const std::vector<int> cpus = usable_cpus();
  // With fewer CPUs than threads pinning would only stack threads up. The caller's own thread is
  // left where the kernel puts it, which is the CPU that no worker holds.
  const bool pins = static_cast<int>(cpus.size()) >= n_threads;
  for (int t = 1; t < n_threads; ++t) {
    const int cpu = pins ? cpus[static_cast<size_t>(t)] : -1;
    shared_->workers.emplace_back([this, t, cpu] { shared_->worker_loop(t, cpu); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->is_stopping = true;
  shared_->publish();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::run(int64_t n_items, Function function, const void* context) {
  if (n_threads_ == 1 || n_items <= 1) {
    for (int64_t i = 0; i < n_items; ++i) function(context, i, 0);
    return;
  }
  Shared& s = *shared_;
  s.function = function;
  s.context = context;
  s.n_items = n_items;
  s.next_item.store(0, std::memory_order_relaxed);
  s.n_done.store(0, std::memory_order_relaxed);
  s.publish();
  s.work(0);
  const int n_workers = n_threads_ - 1;
  for (int64_t round = 0; s.n_done.load(std::memory_order_acquire) != n_workers; ++round) {
    relax();
    if (round % 4096 == 4095)
      std::this_thread::yield();  // more threads than CPUs: let the worker run
  }
}

}  // namespace roost
