// Fork and join on pinned threads: one barrier an op.
#pragma once

#include <cstdint>
#include <memory>

namespace roost {

// The caller is thread 0; n_threads - 1 workers spin briefly, then sleep. One caller at a time.
class ThreadPool {
 public:
  // n_threads >= 1. Workers are pinned to the CPUs this process may use, in order, when there are
  // enough of them.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls task(i) once for each i in [0, n_items); items are claimed in ascending order, in
  // runs that get shorter, so that unequal items balance. Which thread runs an item must not change
  // its result (law 1). Returns when all are done. task is called through a plain pointer: nothing
  // is allocated.
  template <class Task>
  void parallel_for(int64_t n_items, const Task& task) {
    run(
        n_items,
        [](const void* context, int64_t i, int) { (*static_cast<const Task*>(context))(i); },
        &task);
  }
  // The same, with the index of the thread, for per-thread scratch.
  template <class Task>
  void parallel_for_with_thread(int64_t n_items, const Task& task) {
    run(
        n_items,
        [](const void* context, int64_t i, int thread) {
          (*static_cast<const Task*>(context))(i, thread);
        },
        &task);
  }

 private:
  using Function = void (*)(const void* context, int64_t item, int thread);
  void run(int64_t n_items, Function function, const void* context);
  struct Shared;
  int n_threads_;
  std::unique_ptr<Shared> shared_;
};

int n_usable_cpus();  // CPUs this process may run on

}  // namespace roost
