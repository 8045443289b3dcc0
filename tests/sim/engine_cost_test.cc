// What the engine itself costs a step: everything but the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "engine/engine_core.h"
#include "tests/sim/fake_runner.h"

namespace roost {
namespace {

// A model that says token 5 at no cost.
class IdleRunner final : public testing::StatelessRunner {
 public:
  void run(const StepRows&, std::span<int32_t> drawn) override {
    std::fill(drawn.begin(), drawn.end(), 5);
  }
  std::string name() const override { return "idle"; }
};

// Median µs of a step of running streams, their prompts of 2,000 tokens done.
double median_step_us(int32_t n_streams) {
  CoreOptions options;
  options.streams_max = n_streams;
  options.context_max = 4096;
  options.n_pages = 64 * n_streams;
  options.n_snapshots = 128;
  options.limits.gap_ns_max = int64_t{1} << 60;
  testing::VirtualClock clock;
  IdleRunner runner;
  EngineCore core(options, runner, clock);
  core.measure_costs(1);
  for (int32_t s = 0; s < n_streams; ++s) {
    EngineRequest r;
    r.prompt.assign(2000, s + 1);
    r.new_tokens_max = 1500;
    auto sequence = EngineCore::make_sequence(r, [](const EngineEvent&) {}, core.options(), 0);
    sequence->id = static_cast<Engine::RequestId>(s + 1);
    core.add(std::move(sequence));
  }
  while (core.counts().n_generated_tokens < 4 * n_streams) core.admit(), core.step();
  std::vector<double> us;
  for (int i = 0; i < 1000; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    core.admit();
    core.step();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                     .count());
  }
  EXPECT_EQ(core.counts().n_running, n_streams);
  std::nth_element(us.begin(), us.begin() + 500, us.end());
  return us[500];
}

// However slow the model is: one row to warm up, then what fits.
TEST(EngineCost, costs_of_up_to_16_rows_are_measured_in_less_than_300_ms) {
  for (const int64_t row_ns : {10'000, 1'000'000, 10'000'000, 90'000'000, 400'000'000}) {
    CoreOptions options;
    options.streams_max = 1;
    options.context_max = 4096;
    options.n_pages = 64;
    testing::VirtualClock clock;
    testing::FakeRunner runner(64, 1, 1, clock, {.step_ns = row_ns, .row_ns = row_ns});
    runner.reset_slot(0);
    EngineCore core(options, runner, clock);
    const int64_t from = clock.now_ns();
    core.measure_costs(250'000'000);
    EXPECT_LT(clock.now_ns() - from - 2 * row_ns, 300'000'000) << row_ns;
    EXPECT_EQ(core.costs().ns({1, 0}), 2 * row_ns);
    for (int64_t n = 2; n <= 16; ++n)
      EXPECT_GE(core.costs().ns({n, 0}), core.costs().ns({n - 1, 0}));
  }
}

TEST(EngineCost, planning_and_bookkeeping_of_64_streams_take_less_than_200_us_a_step) {
  const double one = median_step_us(1), many = median_step_us(64);
  std::printf("  1 stream: %.2f us, 64 streams: %.2f us\n", one, many);
  EXPECT_LT(many, 200);
  EXPECT_LT(one, 20);
}

}  // namespace
}  // namespace roost
