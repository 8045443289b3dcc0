#include "apps/bench_figures.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace roost {

namespace {

constexpr size_t kSamplesOfP99 = 1000;

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Where nothing was measured stands null, not a number.
json::Value real_or_null(double value, bool is_known) {
  return is_known && std::isfinite(value) ? json::Value::real(value) : json::Value();
}

double decode_rate(const BenchRecord& r) {
  return static_cast<double>(r.n_reply - 1) / (r.e2e() - r.ttft());
}

bool has_decode(const BenchRecord& r) {
  return r.n_reply > 1 && r.e2e() > r.ttft();
}

bool meets(const BenchRecord& r, const BenchGoals& goals) {
  return r.is_ok() && !r.texts.empty() && r.ttft() * 1e3 <= goals.ttft_ms &&
         (!has_decode(r) || decode_rate(r) >= goals.decode_per_s);
}

// Tokens in the best second: those of an event are its share of the reply.
double peak_rate(std::span<const BenchRecord> records, double begin) {
  std::map<int64_t, double> buckets;
  for (const BenchRecord& r : records) {
    const double share =
        static_cast<double>(r.n_reply) / static_cast<double>(std::max<size_t>(r.texts.size(), 1));
    for (const double t : r.texts) buckets[static_cast<int64_t>(t - begin)] += share;
  }
  double best = 0;
  for (const auto& [second, n] : buckets) best = std::max(best, n);
  return best;
}

// Samples of every kind of one load.
struct Samples {
  std::vector<double> ttft, ttfo, e2e, tpot, itl, icl_mean, icl_p99, gap, gap_to_first, prefill,
      decode;

  void add(const BenchRecord& r) {
    ttft.push_back(r.ttft() * 1e3);
    e2e.push_back(r.e2e() * 1e3);
    if (r.first_output > 0) ttfo.push_back((r.first_output - r.sent) * 1e3);
    std::vector<double> gaps;
    for (size_t j = 1; j < r.texts.size(); ++j) gaps.push_back((r.texts[j] - r.texts[j - 1]) * 1e3);
    itl.insert(itl.end(), gaps.begin(), gaps.end());
    const double to_first = (r.first_event - r.sent) * 1e3;
    gap.push_back(gaps.empty() ? 0 : *std::max_element(gaps.begin(), gaps.end()));
    gap_to_first.push_back(std::max(gap.back(), to_first));
    if (!gaps.empty()) {
      icl_mean.push_back(mean_of(gaps));
      std::sort(gaps.begin(), gaps.end());
      icl_p99.push_back(quantile(gaps, 0.99));
    }
    if (has_decode(r)) {
      tpot.push_back((r.e2e() - r.ttft()) * 1e3 / static_cast<double>(r.n_reply - 1));
      decode.push_back(decode_rate(r));
    }
    const double prompt_s = r.ttft() - r.queue_ms / 1e3;
    if (r.n_prompt > r.n_cached && prompt_s > 0)
      prefill.push_back(static_cast<double>(r.n_prompt - r.n_cached) / prompt_s);
  }
};

json::Value accept_of(std::span<const BenchRecord> records) {
  double n_emitted = 0, n_rounds = 0;
  int64_t n_drafted = 0, n_accepted = 0;
  std::vector<double> lengths, held, drafted;
  for (const BenchRecord& r : records) {
    if (!r.is_ok() || r.accept_length == 0) continue;
    const auto rounds = static_cast<double>(r.n_rounds);
    n_emitted += r.accept_length * rounds;
    n_rounds += rounds;
    n_drafted += r.n_drafted;
    n_accepted += r.n_accepted;
    lengths.push_back(r.accept_length);
    const size_t n = std::min(r.accepted_per_position.size(), r.drafted_per_position.size());
    held.resize(std::max(held.size(), n));
    drafted.resize(held.size());
    for (size_t i = 0; i < n; ++i) {
      held[i] += r.accepted_per_position[i] * r.drafted_per_position[i];
      drafted[i] += r.drafted_per_position[i];
    }
  }
  json::Value out = json::Value::object();
  out.set("pooled", real_or_null(n_emitted / n_rounds, n_rounds > 0));
  out.set("mean", real_or_null(mean_of(lengths), !lengths.empty()));
  out.set("drafted", json::Value::integer(n_drafted));
  out.set("accepted", json::Value::integer(n_accepted));
  json::Value per_position = json::Value::array();
  for (size_t i = 0; i < held.size(); ++i)
    per_position.push(real_or_null(held[i] / drafted[i], drafted[i] > 0));
  out.set("accepted_per_position", std::move(per_position));
  return out;
}

}  // namespace

json::Value distribution_of(std::vector<double> values) {
  json::Value out = json::Value::object();
  out.set("n", json::Value::integer(static_cast<int64_t>(values.size())));
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.set("mean", json::Value::real(mean_of(values)));
  out.set("p50", json::Value::real(quantile(values, 0.5)));
  out.set("p90", json::Value::real(quantile(values, 0.9)));
  if (values.size() >= kSamplesOfP99) out.set("p99", json::Value::real(quantile(values, 0.99)));
  out.set("max", json::Value::real(values.back()));
  return out;
}

json::Value figures_of(std::span<const BenchRecord> records, const BenchGoals& goals) {
  Samples samples;
  double begin = HUGE_VAL, end = 0, n_good = 0;
  int64_t n_ok = 0, n_prompt = 0, n_cached = 0, n_reply = 0;
  std::map<std::string, int64_t> errors;
  for (const BenchRecord& r : records) {
    begin = std::min(begin, r.sent);
    n_good += meets(r, goals) ? 1 : 0;
    if (!r.is_ok() || r.texts.empty()) {
      ++errors[r.is_ok() ? "client.no_text" : r.refusal];
      continue;
    }
    ++n_ok;
    end = std::max(end, r.texts.back());
    n_prompt += r.n_prompt;
    n_cached += r.n_cached;
    n_reply += r.n_reply;
    samples.add(r);
  }
  const double w = end - begin;
  json::Value out = json::Value::object();
  out.set("requests", json::Value::integer(static_cast<int64_t>(records.size())));
  out.set("W", real_or_null(w, n_ok > 0));
  const auto put = [&](const char* name, std::vector<double>& values) {
    out.set(name, distribution_of(std::move(values)));
  };
  put("TTFT", samples.ttft), put("TTFO", samples.ttfo), put("E2E", samples.e2e);
  put("TPOT", samples.tpot), put("ITL", samples.itl);
  json::Value icl = json::Value::object();
  icl.set("mean", distribution_of(samples.icl_mean));
  icl.set("p99", distribution_of(samples.icl_p99));
  out.set("ICL", std::move(icl));
  json::Value gap = distribution_of(samples.gap);
  gap.set("with_first_event", distribution_of(samples.gap_to_first));
  out.set("GAP", std::move(gap));
  put("PREFILL", samples.prefill);
  const double per_user = mean_of(samples.decode);
  const bool has_any_decode = !samples.decode.empty();
  put("DECODE", samples.decode);
  out.set("OUT", real_or_null(static_cast<double>(n_reply) / w, n_ok > 0));
  json::Value total = json::Value::object();
  total.set("per_s", real_or_null(static_cast<double>(n_prompt + n_reply) / w, n_ok > 0));
  total.set("cached_prompt_tokens_included", json::Value::boolean(true));
  out.set("TOTAL", std::move(total));
  out.set("PER USER", real_or_null(per_user, has_any_decode));
  out.set("PEAK", real_or_null(peak_rate(records, begin), n_ok > 0));
  json::Value goodput = json::Value::object();
  goodput.set("per_s", real_or_null(n_good / w, n_ok > 0));
  goodput.set("share",
              real_or_null(n_good / static_cast<double>(records.size()), !records.empty()));
  out.set("GOODPUT", std::move(goodput));
  out.set("ACCEPT", accept_of(records));
  json::Value reuse = json::Value::object();
  reuse.set("share", real_or_null(static_cast<double>(n_cached) / static_cast<double>(n_prompt),
                                  n_prompt > 0));
  reuse.set(
      "recomputed_per_turn",
      real_or_null(static_cast<double>(n_prompt - n_cached) / static_cast<double>(n_ok), n_ok > 0));
  out.set("REUSE", std::move(reuse));
  json::Value by_refusal = json::Value::object();
  for (const auto& [refusal, n] : errors) by_refusal.set(refusal, json::Value::integer(n));
  out.set("ERRORS", std::move(by_refusal));
  return out;
}

json::Value medians_of(const std::vector<json::Value>& runs) {
  json::Value out = json::Value::object();
  if (runs.empty()) return out;
  for (const auto& [key, first] : runs.front().members()) {
    if (first.is_object()) {
      std::vector<json::Value> inner;
      for (const json::Value& run : runs)
        if (const json::Value* one = run.find(key); one != nullptr && one->is_object())
          inner.push_back(*one);
      out.set(key, medians_of(inner));
      continue;
    }
    std::vector<double> values;
    for (const json::Value& run : runs)
      if (const json::Value* one = run.find(key); one != nullptr && one->is_number())
        values.push_back(one->as_double());
    if (values.empty()) continue;
    std::sort(values.begin(), values.end());
    json::Value numbers = json::Value::object();
    numbers.set("median", json::Value::real(quantile(values, 0.5)));
    numbers.set("min", json::Value::real(values.front()));
    numbers.set("max", json::Value::real(values.back()));
    out.set(key, std::move(numbers));
  }
  return out;
}

std::optional<double> figure_at(const json::Value& figures, std::string_view path) {
  const json::Value* at = &figures;
  while (!path.empty()) {
    const std::string_view key = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(key.size() + 1, path.size()));
    at = at->find(key);
    if (at == nullptr) return std::nullopt;
  }
  return at->is_number() ? std::optional(at->as_double()) : std::nullopt;
}

}  // namespace roost
