#include "ops/conv_gates/conv_gates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Heads {
  int64_t keys, values, key_dim, value_dim;
  int64_t n_channels() const { return 2 * keys * key_dim + values * value_dim; }
};

struct Case {
  std::string name;
  Heads heads;
  int64_t n_slots = 3, n_kept_max = 0;
  std::vector<DeltaSpan> spans;
  int64_t n_rows = 0, n_packed = 0;
  Values qkv, b, a, conv_weight, a_log, dt_bias, tail, store_qkv, store_b, store_a;
};

ConvGates arrange(const Case& c, Memory& memory) {
  const Heads& h = c.heads;
  const int64_t width = h.n_channels(), n_kept = c.n_kept_max, n_packed = c.n_packed;
  ConvGates op = {.qkv = memory.input(DType::kBF16, {c.n_rows, width}, c.qkv),
                  .b = memory.input(DType::kF32, {c.n_rows, h.values}, c.b),
                  .a = memory.input(DType::kF32, {c.n_rows, h.values}, c.a),
                  .conv_weight = memory.input(DType::kF32, {width, 4}, c.conv_weight),
                  .a_log = memory.input(DType::kF32, {h.values}, c.a_log),
                  .dt_bias = memory.input(DType::kF32, {h.values}, c.dt_bias),
                  .tail = memory.in_out(DType::kBF16, {c.n_slots, 3, width}, c.tail),
                  .store_qkv = {},
                  .store_b = {},
                  .store_a = {},
                  .spans = memory.list(c.spans),
                  .q = memory.output(DType::kBF16, {n_packed, h.keys, h.key_dim}),
                  .k = memory.output(DType::kBF16, {n_packed, h.keys, h.key_dim}),
                  .v = memory.output(DType::kBF16, {n_packed, h.values, h.value_dim}),
                  .kq = memory.output(DType::kF32, {n_packed, h.keys}),
                  .beta = memory.output(DType::kF32, {n_packed, h.values}),
                  .decay = memory.output(DType::kF32, {n_packed, h.values})};
  if (n_kept == 0) return op;
  op.store_qkv = memory.in_out(DType::kBF16, {c.n_slots, n_kept, width}, c.store_qkv);
  op.store_b = memory.in_out(DType::kF32, {c.n_slots, n_kept, h.values}, c.store_b);
  op.store_a = memory.in_out(DType::kF32, {c.n_slots, n_kept, h.values}, c.store_a);
  return op;
}

// c of a channel, and Σ|w·M|, by the judge's own reading of the case.
struct Channel {
  double c, parts;
  double error() const { return 0x1p-8 * std::abs(c) + 8 * 0x1p-24 * parts; }
};

Channel channel_of(const Case& c, const DeltaSpan& span, int64_t p, int64_t ch) {
  const int64_t width = c.heads.n_channels();
  double sum = 0, parts = 0;
  for (int64_t tap = 0; tap < 4; ++tap) {
    const int64_t row = p - 3 + tap;
    const double* raw =
        row < 0 ? &c.tail[static_cast<size_t>((span.slot * 3 + 3 + row) * width)]
        : row < span.n_replay
            ? &c.store_qkv[static_cast<size_t>((span.slot * c.n_kept_max + row) * width)]
            : &c.qkv[static_cast<size_t>((span.first_row + row - span.n_replay) * width)];
    const double part = raw[ch] * c.conv_weight[static_cast<size_t>(ch * 4 + tap)];
    sum += part;
    parts += std::abs(part);
  }
  return {sum / (1 + std::exp(-sum)), parts};
}

// Bounds of one normalized head that starts at channel `first`; c is known up to its own error.
void bound_head(const Case& c, const DeltaSpan& span, int64_t p, int64_t first, double factor,
                double* bounds) {
  const int64_t dim = c.heads.key_dim;
  double squares = 1e-6, shift = 0;
  for (int64_t i = 0; i < dim; ++i) {
    const Channel channel = channel_of(c, span, p, first + i);
    squares += channel.c * channel.c;
    shift += channel.error() * channel.error();
  }
  shift = std::sqrt(shift / squares);
  for (int64_t i = 0; i < dim; ++i) {
    const Channel channel = channel_of(c, span, p, first + i);
    const double exact = std::abs(channel.c) * factor / std::sqrt(squares);
    bounds[i] = (channel.error() * factor / std::sqrt(squares) + exact * shift) /
                    std::max(1 - shift, 0x1p-10) +
                (0x1p-8 + 0x1p-16) * exact;
  }
}

void judge_span(const Case& c, const DeltaSpan& span, Values& q, Values& k, Values& v) {
  const Heads& h = c.heads;
  const int64_t key_width = h.keys * h.key_dim, value_width = h.values * h.value_dim;
  for (int64_t p = 0; p < span.n_packed(); ++p) {
    const int64_t row = span.first_packed + p;
    for (int64_t head = 0; head < h.keys; ++head) {
      const auto at = static_cast<size_t>(row * key_width + head * h.key_dim);
      bound_head(c, span, p, head * h.key_dim, 1 / std::sqrt(static_cast<double>(h.key_dim)),
                 &q[at]);
      bound_head(c, span, p, key_width + head * h.key_dim, 1, &k[at]);
    }
    for (int64_t i = 0; i < value_width; ++i)
      v[static_cast<size_t>(row * value_width + i)] =
          channel_of(c, span, p, 2 * key_width + i).error();
  }
}

// kq is judged by the q and k that were written.
void judge_kq(const Case& c, const ConvGates& got, Judge& judge) {
  const int64_t dim = c.heads.key_dim;
  for (const DeltaSpan& span : c.spans) {
    for (int64_t at = span.first_packed * c.heads.keys;
         at < (span.first_packed + span.n_packed()) * c.heads.keys; ++at) {
      double sum = 0, parts = 0;
      for (int64_t i = 0; i < dim; ++i) {
        const double part = got.k.get(at * dim + i) * got.q.get(at * dim + i);
        sum += part;
        parts += std::abs(part);
      }
      const double bound = (static_cast<double>(dim) / 2 + 8) * 0x1p-24 * parts;
      if (!(std::abs(got.kq.get(at) - sum) <= bound))
        judge.fail("kq[" + std::to_string(at) + "] is not the product of k and q");
    }
  }
}

void judge(const Case& c, const ConvGates& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const ConvGates exact = arrange(c, wide);
  conv_gates_reference(exact, rules);
  Values q(static_cast<size_t>(exact.q.n_elements())), k(q.size());
  Values v(static_cast<size_t>(exact.v.n_elements()));
  for (const DeltaSpan& span : c.spans) judge_span(c, span, q, k, v);
  judge.near("q", got.q, exact.q, [&](int64_t i) { return q[static_cast<size_t>(i)]; });
  judge.near("k", got.k, exact.k, [&](int64_t i) { return k[static_cast<size_t>(i)]; });
  judge.near("v", got.v, exact.v, [&](int64_t i) { return v[static_cast<size_t>(i)]; });
  judge_kq(c, got, judge);
  judge.near("beta", got.beta, exact.beta,
             [&](int64_t i) { return 0x1p-18 * exact.beta.get(i) + 0x1p-126; });
  judge.near("decay", got.decay, exact.decay, [&](int64_t i) {
    const double decay = std::max(exact.decay.get(i), 0x1p-149);
    return 0x1p-20 * (1 - std::log(decay)) * decay + 0x1p-126;
  });
  judge.equal("tail", got.tail, exact.tail);
  if (c.n_kept_max == 0) return;
  judge.equal("store_qkv", got.store_qkv, exact.store_qkv);
  judge.equal("store_b", got.store_b, exact.store_b);
  judge.equal("store_a", got.store_a, exact.store_a);
}

const Suite<ConvGates, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                    .arrange = arrange,
                                    .judge = judge,
                                    .n_rows = nullptr,
                                    .select = nullptr,
                                    .row_outputs = nullptr};

// `n` raw rows and everything that does not belong to a row.
Case make_rows(const Heads& h, int64_t n, int64_t n_kept_max, Fill fill, uint64_t seed) {
  const int64_t width = h.n_channels(), n_slots = 3;
  return {.name = name_of(fill) + " " + std::to_string(h.keys) + "/" + std::to_string(h.values) +
                  " heads of " + std::to_string(h.key_dim) + " and " + std::to_string(h.value_dim) +
                  ", " + std::to_string(n) + " rows",
          .heads = h,
          .n_slots = n_slots,
          .n_kept_max = n_kept_max,
          .spans = {},
          .n_rows = n,
          .n_packed = n,
          .qkv = values(fill, n * width, seed),
          .b = values(fill, n * h.values, seed + 1),
          .a = values(fill, n * h.values, seed + 2),
          .conv_weight = uniform(-1, 1, width * 4, seed + 3),
          .a_log = uniform(-3, 3, h.values, seed + 4),
          .dt_bias = uniform(-4, 2, h.values, seed + 5),
          .tail = values(fill, n_slots * 3 * width, seed + 6),
          .store_qkv = values(fill, n_slots * n_kept_max * width, seed + 7),
          .store_b = values(fill, n_slots * n_kept_max * h.values, seed + 8),
          .store_a = values(fill, n_slots * n_kept_max * h.values, seed + 9)};
}

// Spans of (n_new, n_replay, store_after); the last span's packed rows come first. Slots that no
// span names are NaN.
Case make_case(const Heads& h, int64_t n_kept_max, Fill fill,
               const std::vector<std::array<int32_t, 3>>& plans, uint64_t seed) {
  int32_t n_rows = 0, n_packed = 0, slot = 2;
  for (const auto& [n_new, n_replay, store_after] : plans) {
    n_rows += n_new;
    n_packed += n_new + n_replay;
  }
  Case c = make_rows(h, n_rows, n_kept_max, fill, seed);
  c.n_packed = n_packed;
  int32_t first_row = 0;
  for (const auto& [n_new, n_replay, store_after] : plans) {
    n_packed -= n_new + n_replay;
    c.spans.push_back({first_row, n_new, n_replay, store_after, n_packed, slot--});
    first_row += n_new;
  }
  for (; slot >= 0; --slot) {
    for (Values* values : {&c.tail, &c.store_qkv, &c.store_b, &c.store_a}) {
      const auto size = static_cast<std::ptrdiff_t>(values->size()) / c.n_slots;
      std::fill_n(values->begin() + slot * size, size, NAN);
    }
  }
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    all.push_back(make_case({1, 1, 1, 1}, 0, fill, {{3, 0, 3}}, seed += 20));
    all.push_back(make_case({1, 3, 5, 7}, 4, fill, {{4, 2, 3}, {2, 0, 2}}, seed += 20));
    all.push_back(make_case({2, 2, 16, 33}, 5, fill, {{0, 3, 3}, {5, 0, 0}}, seed += 20));
    all.push_back(
        make_case({3, 6, 24, 16}, 4, fill, {{1, 0, 1}, {2, 4, 6}, {3, 1, 2}}, seed += 20));
    all.push_back(make_case({2, 8, 64, 48}, 0, fill, {{18, 0, 18}}, seed += 20));
    all.push_back(make_case({1, 2, 128, 128}, 6, fill, {{2, 6, 2}, {1, 0, 0}}, seed += 20));
  }
  return all;
}

void scale_by(const Tensor& tensor, double factor) {
  for (int64_t i = 0; i < tensor.n_elements(); ++i) tensor.set(i, tensor.get(i) * factor);
}

void normalize_without_eps(const ConvGates& op) {
  const int64_t dim = op.k.dim(2);
  for (int64_t head = 0; head < op.k.dim(0) * op.k.dim(1); ++head) {
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) squares += std::pow(op.k.get(head * dim + i), 2);
    for (int64_t i = 0; squares > 0 && i < dim; ++i)
      op.k.set(head * dim + i, op.k.get(head * dim + i) / std::sqrt(squares));
  }
}

template <class T>
void rotate_by(std::vector<T>& list, int64_t by) {
  if (!list.empty()) std::rotate(list.begin(), list.begin() + by, list.end());
}

std::vector<Fault<ConvGates, Case>> faults() {
  return {
      {"taps in reverse",
       [](Case& c) {
         for (size_t at = 0; at < c.conv_weight.size(); at += 4)
           std::reverse(&c.conv_weight[at], &c.conv_weight[at] + 4);
       }},
      {"weights of the next channel", [](Case& c) { rotate_by(c.conv_weight, 4); }},
      {"tail one row late", [](Case& c) { rotate_by(c.tail, c.heads.n_channels()); }},
      {"tail of the next slot", [](Case& c) { rotate_by(c.tail, 3 * c.heads.n_channels()); }},
      {"replay begins one row late", [](Case& c) { rotate_by(c.store_qkv, c.heads.n_channels()); }},
      {"replayed gates one row late", [](Case& c) { rotate_by(c.store_a, c.heads.values); }},
      {"tail one row too far",
       [](Case& c) {
         for (DeltaSpan& span : c.spans) span.store_after += span.store_after < span.n_packed();
       }},
      {"dt_bias left out", [](Case& c) { std::fill(c.dt_bias.begin(), c.dt_bias.end(), 0); }},
      {"a_log not an exponent",
       [](Case& c) {
         for (double& x : c.a_log) x = std::log1p(x * x);
       }},
      {"a and b swapped", [](Case& c) { std::swap(c.a, c.b); }},
      {"eps left out", nullptr, normalize_without_eps},
      {"query not scaled", nullptr,
       [](const ConvGates& op) {
         scale_by(op.q, std::sqrt(static_cast<double>(op.q.dim(2))));
         scale_by(op.kq, std::sqrt(static_cast<double>(op.q.dim(2))));
       }},
      {"query and key swapped", nullptr,
       [](const ConvGates& op) {
         std::swap_ranges(op.q.data, op.q.data + op.q.n_bytes(), op.k.data);
       }},
      {"gates of the next head", nullptr,
       [](const ConvGates& op) {
         auto* decay = op.decay.as<float>();
         std::rotate(decay, decay + 1, decay + op.decay.n_elements());
       }},
      {"values one channel late", nullptr,
       [](const ConvGates& op) {
         auto* v = op.v.as<uint16_t>();
         std::rotate(v, v + 1, v + op.v.n_elements());
       }},
      {"tail not moved on", nullptr,
       [](const ConvGates& op) {
         auto* tail = op.tail.as<uint16_t>();
         const int64_t n = op.tail.n_elements();
         std::rotate(tail, tail + n - op.tail.dim(2), tail + n);
       }},
  };
}

// What a packed row of a token became, as bytes.
using RowBytes = std::vector<std::byte>;

// A sequence's raw rows, and a run over them in calls; between calls stay the tail and the store.
class Timeline {
 public:
  Timeline(const Heads& heads, int64_t n_tokens, int64_t n_others, int64_t n_kept_max,
           const Backend<ConvGates>& on)
      : rows_(make_rows(heads, n_tokens + n_others, n_kept_max, Fill::kNormal, 55)), on_(on) {
    // The sequence lives in slot 1; the other slots are not to be looked at.
    for (Values* values : {&rows_.tail, &rows_.store_qkv, &rows_.store_b, &rows_.store_a}) {
      const auto size = static_cast<std::ptrdiff_t>(values->size()) / 3;
      std::fill_n(values->begin(), size, NAN);
      std::fill(values->end() - size, values->end(), NAN);
    }
    out_.resize(static_cast<size_t>(n_tokens));
  }

  // One call over n_replay rows of the store and the rows `fresh`. Rows at n_tokens or behind are
  // strangers: rejected drafts. `first` is the token of the first replayed row.
  void call(int64_t first, int32_t n_replay, const std::vector<int64_t>& fresh,
            int32_t store_after) {
    Case c = rows_;
    const auto n_new = static_cast<int32_t>(fresh.size());
    c.n_rows = n_new + 1;
    c.n_packed = n_replay + n_new + 2;
    std::vector<int64_t> ids = {0};  // row 0 is somebody else's
    ids.insert(ids.end(), fresh.begin(), fresh.end());
    for (Values* values : {&c.qkv, &c.b, &c.a}) gather(*values, ids);
    c.spans = {{1, n_new, n_replay, store_after, 1, 1}};
    Memory memory;
    const ConvGates op = arrange(c, memory);
    check(op);
    on_.run(op);
    EXPECT_EQ(memory.damage(), "");
    keep(op.tail, rows_.tail);
    keep(op.store_qkv, rows_.store_qkv);
    keep(op.store_b, rows_.store_b);
    keep(op.store_a, rows_.store_a);
    for (int32_t p = 0; p < n_replay + n_new; ++p) {
      const int64_t token = p < n_replay ? first + p : fresh[static_cast<size_t>(p - n_replay)];
      if (token >= static_cast<int64_t>(out_.size())) continue;
      RowBytes bytes;
      for (const Tensor& tensor : {op.q, op.k, op.v, op.kq, op.beta, op.decay}) {
        const Tensor row = tensor.at(1 + p);
        bytes.insert(bytes.end(), row.data, row.data + row.n_bytes());
      }
      RowBytes& seen = out_[static_cast<size_t>(token)];
      EXPECT_TRUE(seen.empty() || bytes == seen) << "replayed token " << token;
      seen = bytes;
    }
  }

  Values tail() const {
    const auto size = static_cast<std::ptrdiff_t>(rows_.tail.size()) / 3;
    return {rows_.tail.begin() + size, rows_.tail.begin() + 2 * size};
  }
  const std::vector<RowBytes>& out() const { return out_; }

 private:
  static void keep(const Tensor& tensor, Values& values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.get(static_cast<int64_t>(i));
  }

  void gather(Values& values, const std::vector<int64_t>& ids) const {
    const auto width = static_cast<std::ptrdiff_t>(values.size()) / rows_.n_rows;
    Values taken;
    for (const int64_t id : ids)
      taken.insert(taken.end(), values.begin() + id * width, values.begin() + (id + 1) * width);
    values = taken;
  }

  Case rows_;
  const Backend<ConvGates>& on_;
  std::vector<RowBytes> out_;
};

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

class ConvGatesTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<ConvGates>> backends_{one_.backend<ConvGates>(), two_.backend<ConvGates>()};
};

TEST_F(ConvGatesTest, keeps_its_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.2) << "the bound is far too wide";
}

TEST_F(ConvGatesTest, gives_the_same_bits_twice_and_on_more_threads) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(ConvGatesTest, gives_rows_the_same_bits_cut_anywhere) {
  const Heads heads = {1, 3, 32, 24};
  for (const int64_t n : {1, 2, 7, 64, 65}) {
    Timeline whole(heads, n, 0, 0, backends_[0]);
    whole.call(0, 0, range(0, n), static_cast<int32_t>(n));
    Timeline single(heads, n, 0, 0, backends_[1]);
    for (int64_t t = 0; t < n; ++t) single.call(t, 0, {t}, 1);
    ASSERT_EQ(single.tail(), whole.tail());
    ASSERT_EQ(single.out(), whole.out());
    for (int64_t cut = 1; cut < n; ++cut) {
      Timeline parts(heads, n, 0, 0, backends_[0]);
      parts.call(0, 0, range(0, cut), static_cast<int32_t>(cut));
      parts.call(cut, 0, range(cut, n), static_cast<int32_t>(n - cut));
      ASSERT_EQ(parts.tail(), whole.tail()) << "cut at " << cut << " of " << n;
      ASSERT_EQ(parts.out(), whole.out()) << "cut at " << cut << " of " << n;
    }
  }
}

// Rounds of accepted and rejected rows, the tail kept behind any accepted row, flushed at the end.
TEST_F(ConvGatesTest, leaves_no_trace_of_replays_and_rejected_rows) {
  const Heads heads = {2, 4, 16, 24};
  const int64_t n_tokens = 60, n_strangers = 5, n_kept_max = 9;
  Timeline plain(heads, n_tokens, n_strangers, n_kept_max, backends_[0]);
  plain.call(0, 0, range(0, n_tokens), static_cast<int32_t>(n_tokens));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SeededRandom random(seed);
    const auto up_to = [&](int64_t n) {
      return static_cast<int64_t>(random.next_u64() % static_cast<uint64_t>(n + 1));
    };
    Timeline rounds(heads, n_tokens, n_strangers, n_kept_max, backends_[seed % 2]);
    int64_t stored = 0, done = 0;  // tokens behind the tail, tokens accepted
    while (done < n_tokens) {
      const int64_t n_true = std::min(up_to(6), n_tokens - done), n_replay = done - stored;
      std::vector<int64_t> fresh = range(done, done + n_true);
      for (int64_t i = up_to(n_strangers); i > 0; --i) fresh.push_back(n_tokens + i - 1);
      const int64_t n_packed = n_replay + static_cast<int64_t>(fresh.size());
      int64_t store_after = up_to(n_replay + n_true);
      if (n_packed - store_after > n_kept_max) store_after = n_replay + n_true;
      rounds.call(stored, static_cast<int32_t>(n_replay), fresh, static_cast<int32_t>(store_after));
      stored += store_after;
      done += n_true;
    }
    rounds.call(stored, static_cast<int32_t>(done - stored), {},
                static_cast<int32_t>(done - stored));
    ASSERT_EQ(rounds.tail(), plain.tail()) << "seed " << seed;
    ASSERT_EQ(rounds.out(), plain.out()) << "seed " << seed;
  }
}

// Rows of several sequences in one call: each as if it were alone.
TEST_F(ConvGatesTest, keeps_sequences_apart) {
  const Case together =
      make_case({2, 4, 24, 40}, 6, Fill::kNormal, {{3, 0, 3}, {2, 2, 3}, {5, 1, 0}}, 5);
  Memory memory;
  const ConvGates want = arrange(together, memory);
  backends_[1].run(want);
  for (const DeltaSpan& span : together.spans) {
    Case alone = together;
    alone.spans = {span};
    for (Values* values : {&alone.tail, &alone.store_qkv, &alone.store_b, &alone.store_a}) {
      const auto size = static_cast<std::ptrdiff_t>(values->size()) / alone.n_slots;
      std::fill_n(values->begin(), span.slot * size, NAN);
      std::fill(values->begin() + (span.slot + 1) * size, values->end(), NAN);
    }
    Memory other;
    const ConvGates got = arrange(alone, other);
    backends_[0].run(got);
    EXPECT_EQ(row_difference(got.tail, span.slot, want.tail, span.slot), "");
    EXPECT_EQ(row_difference(got.store_qkv, span.slot, want.store_qkv, span.slot), "");
    EXPECT_EQ(row_difference(got.store_a, span.slot, want.store_a, span.slot), "");
    for (int32_t p = span.first_packed; p < span.first_packed + span.n_packed(); ++p) {
      EXPECT_EQ(row_difference(got.q, p, want.q, p), "");
      EXPECT_EQ(row_difference(got.k, p, want.k, p), "");
      EXPECT_EQ(row_difference(got.v, p, want.v, p), "");
      EXPECT_EQ(row_difference(got.decay, p, want.decay, p), "");
    }
  }
}

TEST_F(ConvGatesTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

}  // namespace
}  // namespace roost
