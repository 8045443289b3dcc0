#include "device/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <vector>

namespace roost {
namespace {

TEST(ThreadPool, runs_every_item_exactly_once) {
  for (const int n_threads : {1, 2, 3, 5}) {
    ThreadPool pool(n_threads);
    for (const int64_t n_items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> n_runs(static_cast<size_t>(n_items));
      pool.parallel_for(n_items, [&](int64_t i) { n_runs[static_cast<size_t>(i)].fetch_add(1); });
      for (const auto& n : n_runs) ASSERT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPool, every_worker_is_pinned_to_one_cpu) {
  const int n_threads = n_usable_cpus();
  ThreadPool pool(n_threads);
  std::vector<std::atomic<int>> cpus_of(static_cast<size_t>(n_threads));
  for (int round = 0; round < 100; ++round) {
    pool.parallel_for_with_thread(1000, [&](int64_t, int thread) {
      cpu_set_t set;
      CPU_ZERO(&set);
      ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
      cpus_of[static_cast<size_t>(thread)] = CPU_COUNT(&set);
    });
  }
  for (int t = 1; t < n_threads; ++t) {  // thread 0 is the caller's own
    const int n_cpus = cpus_of[static_cast<size_t>(t)];
    EXPECT_TRUE(n_cpus == 1 || n_cpus == 0) << n_cpus;  // 0: it never got an item
  }
}

TEST(ThreadPool, many_short_tasks_see_each_other_s_writes) {
  ThreadPool pool(2);
  std::vector<int64_t> values(64, 0);
  for (int round = 0; round < 20'000; ++round) {
    pool.parallel_for(64, [&](int64_t i) { values[static_cast<size_t>(i)] += i; });
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 20'000 * i);
}

TEST(ThreadPool, thread_indexes_stay_below_the_number_of_threads) {
  ThreadPool pool(3);
  std::atomic<int> n_bad{0};
  pool.parallel_for_with_thread(1000,
                                [&](int64_t, int thread) { n_bad += thread < 0 || thread >= 3; });
  EXPECT_EQ(n_bad.load(), 0);
}

TEST(ThreadPool, wakes_workers_that_went_to_sleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> n{0};
    pool.parallel_for(100, [&](int64_t) { n.fetch_add(1); });
    EXPECT_EQ(n.load(), 100);
    // Long enough, in work and not in time, for a worker to run out of its spinning rounds.
    volatile double x = 1;
    for (int i = 0; i < 5'000'000; ++i) x = x * 1.0000001;
  }
}

}  // namespace
}  // namespace roost
