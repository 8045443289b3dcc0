#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/counted.h"

namespace roost {

namespace {

enum class Kind { kCounter, kGauge, kTimesF, kTimesI, kTimesL, kTokens };

struct Row {
  std::string_view own;
  Kind kind;
  std::string_view compatible;  // names, with commas between
  std::string_view help;
};

constexpr Row kRows[] = {
#define ROOST_METRIC(field, own, kind, compatible, help) {own, Kind::kind, compatible, help},
#include "server/metrics.def"
#undef ROOST_METRIC
};
constexpr size_t kMetrics = std::size(kRows);

constexpr double kBoundsI[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                               0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double kBoundsL[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                               30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

std::span<const double> bounds_of(Kind kind) {
  switch (kind) {
    case Kind::kTimesF:
      return kSecondBounds;
    case Kind::kTimesI:
      return kBoundsI;
    case Kind::kTimesL:
      return kBoundsL;
    case Kind::kTokens:
      return kTokenBounds;
    default:
      return {};
  }
}

std::string_view type_name(Kind kind) {
  if (kind == Kind::kCounter) return "counter";
  return kind == Kind::kGauge ? "gauge" : "histogram";
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "," + b;
}

}  // namespace

std::string label(std::string_view name, std::string_view value) {
  std::string out = fmt::format("{}=\"", name);
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

Metrics::Metrics() : values_(kMetrics), histograms_(kMetrics) {
  for (size_t i = 0; i < kMetrics; ++i) {
    const std::span<const double> bounds = bounds_of(kRows[i].kind);
    if (!bounds.empty()) histograms_[i].counts.resize(bounds.size() + 1);
  }
}

void Metrics::add(Metric metric, double value, const std::string& labels) {
  const std::lock_guard lock(mutex_);
  values_[static_cast<size_t>(metric)][labels] += value;
}

void Metrics::set(Metric metric, double value, const std::string& labels) {
  const std::lock_guard lock(mutex_);
  values_[static_cast<size_t>(metric)][labels] = value;
}

void Metrics::observe(Metric metric, double value, uint64_t n) {
  const std::span<const double> bounds = bounds_of(kRows[static_cast<size_t>(metric)].kind);
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  const std::lock_guard lock(mutex_);
  Histogram& histogram = histograms_[static_cast<size_t>(metric)];
  histogram.counts[static_cast<size_t>(bucket)] += n;
  histogram.sum += value * static_cast<double>(n);
}

void Metrics::set_counted(Metric metric, std::span<const int64_t> counts, double sum) {
  const std::lock_guard lock(mutex_);
  Histogram& histogram = histograms_[static_cast<size_t>(metric)];
  histogram.counts.assign(counts.begin(), counts.end());
  histogram.sum = sum;
}

double Metrics::total(Metric metric) const {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<size_t>(metric);
  double sum = histograms_[i].sum;
  for (const auto& [labels, value] : values_[i]) sum += value;
  return sum;
}

std::string Metrics::text(std::string_view model, bool has_compatible) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto print = [&](size_t i, const std::string& name, const std::string& always) {
    const Row& row = kRows[i];
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, row.help, name, type_name(row.kind));
    const std::span<const double> bounds = bounds_of(row.kind);
    if (!bounds.empty()) {
      uint64_t n = 0;
      for (size_t b = 0; b <= bounds.size(); ++b) {
        n += histograms_[i].counts[b];
        const std::string le = b < bounds.size() ? fmt::format("{}", bounds[b]) : "+Inf";
        out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, always, le, n);
      }
      out += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, always, histograms_[i].sum,
                         name, always, n);
      return;
    }
    if (values_[i].empty()) out += fmt::format("{}{{{}}} 0\n", name, always);
    for (const auto& [labels, value] : values_[i])
      out += fmt::format("{}{{{}}} {}\n", name, joined(always, labels), value);
  };
  const std::string always = label("model_name", model);
  for (size_t i = 0; i < kMetrics; ++i) {
    if (!kRows[i].own.empty()) print(i, fmt::format("roost_{}", kRows[i].own), always);
    if (!has_compatible) continue;
    std::string_view names = kRows[i].compatible;
    while (!names.empty()) {
      const size_t end = std::min(names.find(','), names.size());
      print(i, fmt::format("vllm:{}", names.substr(0, end)), joined(always, "engine=\"0\""));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  return out;
}

}  // namespace roost
