// The figures of a load, by the definitions of docs/SERVER.md, benchmark.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/bench_client.h"
#include "base/json.h"

namespace roost {

struct BenchGoals {
  double ttft_ms = 500, decode_per_s = 20;
};

// Mean, percentiles and the count; p99 only of 1,000 values and more, nothing of none.
json::Value distribution_of(std::vector<double> values);

// The named figures of requests sent over one span of time. Times in milliseconds, rates a second.
json::Value figures_of(std::span<const BenchRecord> records, const BenchGoals& goals);

// Numbers at equal places of several objects become {"median", "min", "max"}.
json::Value medians_of(const std::vector<json::Value>& runs);

// The number at a path such as "TTFT.p50", or nothing.
std::optional<double> figure_at(const json::Value& figures, std::string_view path);

}  // namespace roost
