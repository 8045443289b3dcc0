// Counts and times for Prometheus, text format 0.0.4 as metrics.def lists them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace roost {

enum class Metric {
#define ROOST_METRIC(field, own, kind, compatible, help) k##field,
#include "server/metrics.def"
#undef ROOST_METRIC
};

class Metrics {
 public:
  Metrics();

  // Any thread. labels: `name="value",…` with values that no request chooses, or empty.
  void add(Metric metric, double value, const std::string& labels = "");  // counters
  void set(Metric metric, double value, const std::string& labels = "");  // gauges
  void observe(Metric metric, double value, uint64_t n = 1);              // histograms

  // A histogram that is counted elsewhere, with the bounds of engine/counted.h.
  void set_counted(Metric metric, std::span<const int64_t> counts, double sum);
  // Of all labels of a counter or a gauge; the sum of a histogram.
  double total(Metric metric) const;

  // All of them; has_compatible: with the names behind "vllm:".
  std::string text(std::string_view model, bool has_compatible) const;

 private:
  struct Histogram {
    std::vector<uint64_t> counts;  // of each bucket, and of what is beyond the last
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::vector<std::map<std::string, double>> values_;  // by metric, then by labels
  std::vector<Histogram> histograms_;                  // by metric
};

std::string label(std::string_view name, std::string_view value);  // name="value", escaped

}  // namespace roost
