// The definitions of the figures, on requests of which everything is known.
#include "apps/bench_figures.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

// Sent at `sent`; five tokens in events at 1.0, 1.1, 1.2, 1.5 seconds behind it.
BenchRecord record(double sent) {
  BenchRecord r;
  r.sent = sent;
  r.first_event = sent + 0.25;
  r.texts = {sent + 1.0, sent + 1.1, sent + 1.2, sent + 1.5};
  r.first_output = sent + 1.1;  // the first event was reasoning
  r.n_prompt = 100, r.n_cached = 40, r.n_reply = 5;
  r.queue_ms = 400;
  r.n_rounds = 2, r.accept_length = 2.5, r.n_drafted = 6, r.n_accepted = 3;
  r.accepted_per_position = {1, 0.5};
  r.drafted_per_position = {4, 2};
  return r;
}

double at(const json::Value& figures, const char* path) {
  const std::optional<double> value = figure_at(figures, path);
  EXPECT_TRUE(value) << path;
  return value.value_or(-1);
}

TEST(BenchFigures, every_name_is_what_its_definition_says) {
  const std::vector<BenchRecord> records = {record(10), record(11)};
  const json::Value f = figures_of(records, {.ttft_ms = 1100, .decode_per_s = 5});
  const double w = 2.5;  // from the first sending to the last token
  EXPECT_NEAR(at(f, "W"), w, 1e-9);
  EXPECT_NEAR(at(f, "TTFT.mean"), 1000, 1e-6);
  EXPECT_NEAR(at(f, "TTFO.mean"), 1100, 1e-6);
  EXPECT_NEAR(at(f, "E2E.p90"), 1500, 1e-6);
  EXPECT_NEAR(at(f, "TPOT.mean"), 500.0 / 4, 1e-6);
  EXPECT_EQ(at(f, "ITL.n"), 6);
  EXPECT_NEAR(at(f, "ITL.p50"), 100, 1e-6);
  EXPECT_NEAR(at(f, "ICL.mean.mean"), 500.0 / 3, 1e-6);
  EXPECT_NEAR(at(f, "GAP.max"), 300, 1e-6);
  EXPECT_NEAR(at(f, "GAP.with_first_event.max"), 300, 1e-6);
  EXPECT_NEAR(at(f, "PREFILL.mean"), 60 / 0.6, 1e-6);
  EXPECT_NEAR(at(f, "DECODE.mean"), 8, 1e-6);
  EXPECT_NEAR(at(f, "OUT"), 10 / w, 1e-9);
  EXPECT_NEAR(at(f, "TOTAL.per_s"), 210 / w, 1e-9);
  EXPECT_NEAR(at(f, "PER USER"), 8, 1e-6);
  EXPECT_NEAR(at(f, "PEAK"), 5, 1e-9);
  EXPECT_NEAR(at(f, "GOODPUT.per_s"), 2 / w, 1e-9);
  EXPECT_EQ(at(f, "GOODPUT.share"), 1);
  EXPECT_NEAR(at(f, "ACCEPT.pooled"), 2.5, 1e-9);
  EXPECT_EQ(at(f, "ACCEPT.accepted"), 6);
  BenchRecord rare = records[0];  // one long round, which held to its end
  rare.accepted_per_position = {1, 1, 1}, rare.drafted_per_position = {1, 1, 1};
  const json::Value pooled = figures_of(std::vector<BenchRecord>{records[0], rare}, {});
  const std::vector<json::Value>& shares =
      pooled.find("ACCEPT")->find("accepted_per_position")->items();
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares[0].as_double(), 1, 1e-9);
  EXPECT_NEAR(shares[1].as_double(), 2.0 / 3, 1e-9);
  EXPECT_NEAR(shares[2].as_double(), 1, 1e-9);
  EXPECT_NEAR(at(f, "REUSE.share"), 0.4, 1e-9);
  EXPECT_NEAR(at(f, "REUSE.recomputed_per_turn"), 60, 1e-9);
  EXPECT_FALSE(figure_at(f, "TTFT.p99")) << "not of two samples";
}

TEST(BenchFigures, failures_are_misses_and_stay_in_the_report) {
  BenchRecord refused;
  refused.sent = 10.5;
  refused.refusal = "queue.full";
  const std::vector<BenchRecord> records = {record(10), refused};
  const json::Value f = figures_of(records, {.ttft_ms = 999, .decode_per_s = 5});
  EXPECT_EQ(at(f, "GOODPUT.share"), 0);
  EXPECT_EQ(f.find("ERRORS")->find("queue.full")->as_int64(), 1);
  EXPECT_EQ(at(f, "TTFT.n"), 1);
  EXPECT_EQ(at(figures_of(records, {.ttft_ms = 1001, .decode_per_s = 5}), "GOODPUT.share"), 0.5);
}

TEST(BenchFigures, p99_needs_a_thousand_samples) {
  EXPECT_EQ(distribution_of(std::vector<double>(999, 1)).find("p99"), nullptr);
  EXPECT_NE(distribution_of(std::vector<double>(1000, 1)).find("p99"), nullptr);
  EXPECT_EQ(distribution_of({}).find("mean"), nullptr);
}

TEST(BenchFigures, nothing_measured_is_no_number) {
  const json::Value f = figures_of({}, {});
  EXPECT_TRUE(f.find("OUT")->is_null());
  EXPECT_TRUE(f.find("GOODPUT")->find("share")->is_null());
}

TEST(BenchFigures, runs_become_medians_with_their_spread) {
  const auto run = [](double x) {
    json::Value inner = json::Value::object();
    inner.set("p50", json::Value::real(x));
    json::Value out = json::Value::object();
    out.set("TTFT", std::move(inner));
    return out;
  };
  const json::Value medians = medians_of({run(3), run(1), run(2)});
  EXPECT_EQ(at(medians, "TTFT.p50.median"), 2);
  EXPECT_EQ(at(medians, "TTFT.p50.min"), 1);
  EXPECT_EQ(at(medians, "TTFT.p50.max"), 3);
}

TEST(BenchFigures, targets_are_addresses_with_a_port) {
  EXPECT_EQ(parse_target("http://127.0.0.1:81/", "")->port, 81);
  EXPECT_EQ(parse_target("http://localhost:8080", "")->host, "127.0.0.1");
  for (const char* bad : {"", "http://", "https://127.0.0.1:1", "http://127.0.0.1",
                          "http://example:80", "http://127.0.0.1:0", "http://127.0.0.1:99999"})
    EXPECT_FALSE(parse_target(bad, "")) << bad;
}

}  // namespace
}  // namespace roost
