#include "ops/gated_delta/gated_delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Case {
  std::string name;
  int64_t key_heads, value_heads, key_dim, value_dim, n_slots;
  std::vector<DeltaSpan> spans;
  int64_t n_rows = 0, n_packed = 0;
  Values q, k, v, kq, beta, decay, z, norm_weight, state;
  float eps = 1e-6f;

  int64_t state_size() const { return value_heads * key_dim * value_dim; }
};

GatedDelta arrange(const Case& c, Memory& memory) {
  const int64_t width = c.value_heads * c.value_dim;
  return {.q = memory.input(DType::kBF16, {c.n_packed, c.key_heads, c.key_dim}, c.q),
          .k = memory.input(DType::kBF16, {c.n_packed, c.key_heads, c.key_dim}, c.k),
          .v = memory.input(DType::kBF16, {c.n_packed, c.value_heads, c.value_dim}, c.v),
          .kq = memory.input(DType::kF32, {c.n_packed, c.key_heads}, c.kq),
          .beta = memory.input(DType::kF32, {c.n_packed, c.value_heads}, c.beta),
          .decay = memory.input(DType::kF32, {c.n_packed, c.value_heads}, c.decay),
          .z = memory.input(DType::kBF16, {c.n_rows, width}, c.z),
          .norm_weight = memory.input(DType::kF32, {c.value_dim}, c.norm_weight),
          .state = memory.in_out(DType::kF32, {c.n_slots, c.value_heads, c.key_dim, c.value_dim},
                                 c.state),
          .out = memory.output(DType::kBF16, {c.n_rows, width}),
          .spans = memory.list(c.spans),
          .eps = c.eps};
}

// The bounds of the contract, from a recurrence of the judge's own, one value column at a time.
struct Bounds {
  Values state, out;
};

void bound_head(const Case& c, const DeltaSpan& span, int64_t head, const GatedDelta& exact,
                Bounds& bounds) {
  const auto key_dim = static_cast<size_t>(c.key_dim), dim = static_cast<size_t>(c.value_dim);
  const int64_t key_head = head * c.key_heads / c.value_heads;
  const double unit = (static_cast<double>(c.key_dim) + 8) * 0x1p-24;
  const auto state_at =
      static_cast<size_t>(span.slot * c.state_size() + head * c.key_dim * c.value_dim);
  Values state(c.state.begin() + static_cast<std::ptrdiff_t>(state_at),
               c.state.begin() + static_cast<std::ptrdiff_t>(state_at + key_dim * dim));
  Values largest(dim), y(dim), y_error(dim);
  for (int64_t p = 0; p < span.n_packed(); ++p) {
    const int64_t row = span.first_packed + p;
    const double* q = &c.q[static_cast<size_t>((row * c.key_heads + key_head) * c.key_dim)];
    const double* k = &c.k[static_cast<size_t>((row * c.key_heads + key_head) * c.key_dim)];
    const auto gate_at = static_cast<size_t>(row * c.value_heads + head);
    const double decay = c.decay[gate_at], steps = static_cast<double>(p + 1);
    const double kq = c.kq[static_cast<size_t>(row * c.key_heads + key_head)];
    double y_squares = 0, y_shift = 0;
    for (size_t col = 0; col < dim; ++col) {
      const double v = c.v[gate_at * dim + col];
      double m = 0, n = 0, parts = 0, squares = 0;
      for (size_t i = 0; i < key_dim; ++i) {
        const double s = state[i * dim + col];
        m += s * k[i];
        n += s * q[i];
        parts += std::abs(s) * (std::abs(k[i]) + std::abs(q[i]));
        squares += s * s;
      }
      largest[col] = std::max(largest[col], parts + std::abs(v) + std::sqrt(squares));
      const double delta = c.beta[gate_at] * (v - decay * m);
      y[col] = decay * n + delta * kq;
      y_error[col] = 0x1p-8 * std::abs(y[col]) + 2 * steps * unit * largest[col];
      y_squares += y[col] * y[col];
      y_shift += y_error[col] * y_error[col];
      for (size_t i = 0; i < key_dim; ++i) {
        double& s = state[i * dim + col];
        s = decay * s + k[i] * delta;
      }
      if (p + 1 != span.store_after) continue;
      for (size_t i = 0; i < key_dim; ++i)
        bounds.state[state_at + i * dim + col] = steps * unit * largest[col] + 0x1p-126;
    }
    if (p < span.n_replay) continue;
    // The norm moves by no more than the norm of y's error, relative to y's (with eps).
    const double power = y_squares + static_cast<double>(c.value_dim) * c.eps;
    const double shift = std::sqrt(y_shift / power), rms = std::sqrt(power / c.value_dim);
    for (size_t col = 0; col < dim; ++col) {
      const auto at =
          static_cast<size_t>(((span.first_row + p - span.n_replay) * c.value_heads + head) *
                              c.value_dim) +
          col;
      const double gain = std::abs(c.norm_weight[col] * c.z[at] / (1 + std::exp(-c.z[at])));
      const double out = std::abs(exact.out.get(static_cast<int64_t>(at)));
      bounds.out[at] = (gain * y_error[col] / rms + out * shift) / std::max(1 - shift, 0x1p-10) +
                       (0x1p-8 + (c.value_dim / 2 + 16) * 0x1p-24) * out + 0x1p-126;
    }
  }
}

void judge(const Case& c, const GatedDelta& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const GatedDelta exact = arrange(c, wide);
  gated_delta_reference(exact, rules);
  Bounds bounds{Values(c.state.size()), Values(c.z.size())};
  for (const DeltaSpan& span : c.spans) {
    for (int64_t head = 0; head < c.value_heads; ++head) bound_head(c, span, head, exact, bounds);
  }
  judge.near("out", got.out, exact.out,
             [&](int64_t i) { return bounds.out[static_cast<size_t>(i)]; });
  judge.near("state", got.state, exact.state,
             [&](int64_t i) { return bounds.state[static_cast<size_t>(i)]; });
}

const Suite<GatedDelta, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                     .arrange = arrange,
                                     .judge = judge,
                                     .n_rows = nullptr,
                                     .select = nullptr,
                                     .row_outputs = nullptr};

// Heads of length 1, times `length`, rounded to bf16.
void normalize_heads(Values& heads, int64_t dim, double length) {
  for (size_t at = 0; at < heads.size(); at += static_cast<size_t>(dim)) {
    double squares = 1e-30;
    for (size_t i = 0; i < static_cast<size_t>(dim); ++i) squares += heads[at + i] * heads[at + i];
    for (size_t i = 0; i < static_cast<size_t>(dim); ++i)
      heads[at + i] =
          f32_from_bf16(bf16_from_f64(heads[at + i] * length * 0.998 / std::sqrt(squares)));
  }
}

struct Heads {
  int64_t keys, values, key_dim, value_dim;
};

// Inputs of `n` packed rows, and a z for each of them.
Case make_rows(const Heads& heads, int64_t n, Fill fill, uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(heads.keys) + "/" +
                 std::to_string(heads.values) + " heads of " + std::to_string(heads.key_dim) + "x" +
                 std::to_string(heads.value_dim) + ", " + std::to_string(n) + " rows",
         .key_heads = heads.keys,
         .value_heads = heads.values,
         .key_dim = heads.key_dim,
         .value_dim = heads.value_dim,
         .n_slots = 3,
         .spans = {},
         .n_rows = n,
         .n_packed = n,
         .q = values(fill, n * heads.keys * heads.key_dim, seed),
         .k = values(fill, n * heads.keys * heads.key_dim, seed + 1),
         .v = values(fill, n * heads.values * heads.value_dim, seed + 2),
         .kq = {},
         .beta = uniform(0, 1, n * heads.values, seed + 3),
         .decay = uniform(0.6, 1, n * heads.values, seed + 4),
         .z = values(fill == Fill::kTiny ? Fill::kNormal : fill, n * heads.values * heads.value_dim,
                     seed + 5),
         .norm_weight = uniform(0.25, 2, heads.value_dim, seed + 6),
         .state = {}};
  c.state = values(fill, c.n_slots * c.state_size(), seed + 7);
  // Gates at their ends: nothing decays, all decays, nothing is learned, all is.
  const double ends[][2] = {{1 - 0x1p-24, 1}, {1e-30, 1}, {1, 0}, {0, 1}, {1 - 0x1p-24, 0.5}};
  for (size_t i = 0; i < std::min(c.beta.size(), std::size(ends)); i += 1) {
    const size_t at = i * 5 % c.beta.size();
    c.decay[at] = static_cast<float>(ends[i][0]);
    c.beta[at] = ends[i][1];
  }
  normalize_heads(c.q, c.key_dim, 1 / std::sqrt(static_cast<double>(c.key_dim)));
  normalize_heads(c.k, c.key_dim, 1);
  for (size_t at = 0; at < c.q.size(); at += static_cast<size_t>(c.key_dim)) {
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(c.key_dim); ++i) sum += c.q[at + i] * c.k[at + i];
    c.kq.push_back(static_cast<float>(sum));
  }
  return c;
}

// The rows dealt out to spans of (n_new, n_replay, store_after), the last span's first.
Case with_spans(Case c, const std::vector<std::array<int32_t, 3>>& plans) {
  int32_t first_row = 0, first_packed = static_cast<int32_t>(c.n_packed), slot = 2;
  for (const auto& [n_new, n_replay, store_after] : plans) {
    first_packed -= n_new + n_replay;
    c.spans.push_back({first_row, n_new, n_replay, store_after, first_packed, slot--});
    first_row += n_new;
  }
  c.n_rows = first_row;
  c.z.resize(static_cast<size_t>(c.n_rows * c.value_heads * c.value_dim));
  for (int32_t unused = slot; unused >= 0; --unused)
    std::fill_n(c.state.begin() + unused * c.state_size(), c.state_size(), NAN);
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    const auto add = [&](const Heads& heads, int64_t n,
                         const std::vector<std::array<int32_t, 3>>& plans) {
      all.push_back(with_spans(make_rows(heads, n, fill, seed += 10), plans));
    };
    add({1, 1, 1, 1}, 3, {{3, 0, 3}});
    add({1, 3, 5, 7}, 9, {{4, 2, 3}, {3, 0, 3}});
    add({2, 2, 16, 48}, 8, {{0, 3, 3}, {5, 0, 0}});
    add({2, 4, 48, 33}, 11, {{1, 0, 1}, {2, 4, 6}, {3, 1, 2}});
    add({2, 8, 64, 64}, 7, {{7, 0, 7}});
    add({1, 2, 128, 128}, 5, {{2, 3, 4}});
  }
  all.push_back(with_spans(make_rows({1, 1, 32, 16}, 600, Fill::kNormal, seed), {{600, 0, 600}}));
  return all;
}

// Value heads in another order, as if head j belonged to key head j mod Hk.
template <class T>
void to_modulo(std::vector<T>& list, const Case& c, int64_t width) {
  const std::vector<T> old = list;
  const int64_t per_key = c.value_heads / c.key_heads;
  const int64_t n = static_cast<int64_t>(old.size()) / (c.value_heads * width);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t j = 0; j < c.value_heads; ++j) {
      const int64_t place = j % c.key_heads * per_key + j / c.key_heads;
      std::copy_n(old.begin() + (row * c.value_heads + j) * width, width,
                  list.begin() + (row * c.value_heads + place) * width);
    }
  }
}

void heads_by_modulo(Case& c) {
  to_modulo(c.v, c, c.value_dim);
  to_modulo(c.z, c, c.value_dim);
  to_modulo(c.beta, c, 1);
  to_modulo(c.decay, c, 1);
  to_modulo(c.state, c, c.key_dim * c.value_dim);
}

void transpose_state(Case& c) {
  const Values old = c.state;
  const int64_t rows = c.key_dim, cols = c.value_dim;
  for (int64_t i = 0; i < static_cast<int64_t>(old.size()); ++i) {
    const int64_t head = i / (rows * cols), at = i % (rows * cols);
    c.state[static_cast<size_t>(head * rows * cols + at % rows * cols + at / rows)] =
        old[static_cast<size_t>(i)];
  }
}

std::vector<Fault<GatedDelta, Case>> faults() {
  return {
      {"decay applied twice",
       [](Case& c) {
         for (double& g : c.decay) g *= g;
       }},
      {"y without the row's own change", [](Case& c) { std::fill(c.kq.begin(), c.kq.end(), 0); }},
      {"key head by modulo", heads_by_modulo},
      {"state transposed", transpose_state},
      {"beta left out", [](Case& c) { std::fill(c.beta.begin(), c.beta.end(), 1); }},
      {"value columns of the next head",
       [](Case& c) { std::rotate(c.v.begin(), c.v.begin() + c.value_dim, c.v.end()); }},
      {"queries and keys swapped", [](Case& c) { std::swap(c.q, c.k); }},
      {"last key dim dropped",
       [](Case& c) {
         for (size_t i = static_cast<size_t>(c.key_dim) - 1; i < c.k.size();
              i += static_cast<size_t>(c.key_dim))
           c.k[i] = 0;
       }},
      {"eps left out", [](Case& c) { c.eps = 1e-30f; }},
      {"norm weight one element late",
       [](Case& c) {
         std::rotate(c.norm_weight.begin(), c.norm_weight.begin() + 1, c.norm_weight.end());
       }},
      {"z of the next row",
       [](Case& c) {
         const auto width = c.value_heads * c.value_dim;
         if (c.n_rows > 1) std::rotate(c.z.begin(), c.z.begin() + width, c.z.end());
       }},
      {"one row too many in the state",
       [](Case& c) {
         for (DeltaSpan& span : c.spans) span.store_after += span.store_after < span.n_packed();
       }},
      {"state of the next slot",
       [](Case& c) {
         std::rotate(c.state.begin(), c.state.begin() + c.state_size(), c.state.end());
       }},
      {"last row not written", nullptr,
       [](const GatedDelta& op) { op.out.set(op.out.n_elements() - 1, NAN); }},
  };
}

// A sequence's rows, and a run over them in calls; what stays between calls is the state.
class Timeline {
 public:
  Timeline(const Heads& heads, int64_t n_tokens, int64_t n_others, const Backend<GatedDelta>& on)
      : rows_(make_rows(heads, n_tokens + n_others, Fill::kNormal, 77)), on_(on) {
    for (int64_t i = 0; i < rows_.state_size(); ++i)
      state_.push_back(
          std::bit_cast<uint32_t>(static_cast<float>(rows_.state[static_cast<size_t>(i)])));
    out_.resize(static_cast<size_t>(n_tokens));
  }

  // One call over rows `packed`, of which the first n_replay are replayed. Rows at n_tokens or
  // behind are strangers: rejected drafts.
  void call(const std::vector<int64_t>& packed, int32_t n_replay, int32_t store_after) {
    Case c = rows_;
    c.n_slots = 3;
    c.n_packed = static_cast<int64_t>(packed.size()) + 2;
    c.n_rows = static_cast<int64_t>(packed.size()) - n_replay + 1;
    std::vector<int64_t> ids = {0};  // the call has room that is not this sequence's
    ids.insert(ids.end(), packed.begin(), packed.end());
    ids.push_back(0);
    for (Values* values : {&c.q, &c.k, &c.v, &c.kq, &c.beta, &c.decay}) gather(*values, ids);
    std::vector<int64_t> new_ids(ids.begin() + 1 + n_replay, ids.end());
    gather(c.z, new_ids);
    c.state.assign(static_cast<size_t>(3 * c.state_size()), NAN);
    for (size_t i = 0; i < state_.size(); ++i)
      c.state[state_.size() + i] = std::bit_cast<float>(state_[i]);
    const auto n_new = static_cast<int32_t>(packed.size()) - n_replay;
    c.spans = {{0, n_new, n_replay, store_after, 1, 1}};
    Memory memory;
    const GatedDelta op = arrange(c, memory);
    check(op);
    on_.run(op);
    EXPECT_EQ(memory.damage(), "");
    std::copy_n(op.state.as<uint32_t>() + c.state_size(), c.state_size(), state_.begin());
    const int64_t width = c.value_heads * c.value_dim;
    for (int32_t r = 0; r < n_new; ++r) {
      const auto token = static_cast<size_t>(packed[static_cast<size_t>(n_replay + r)]);
      const auto* bits = op.out.as<uint16_t>() + r * width;
      if (token < out_.size()) out_[token].assign(bits, bits + width);
    }
  }

  const std::vector<uint32_t>& state() const { return state_; }
  const std::vector<std::vector<uint16_t>>& out() const { return out_; }

 private:
  void gather(Values& values, const std::vector<int64_t>& ids) const {
    const auto width = static_cast<std::ptrdiff_t>(values.size()) / rows_.n_packed;
    Values taken;
    for (const int64_t id : ids)
      taken.insert(taken.end(), values.begin() + id * width, values.begin() + (id + 1) * width);
    values = taken;
  }

  Case rows_;
  const Backend<GatedDelta>& on_;
  std::vector<uint32_t> state_;             // bits of f32
  std::vector<std::vector<uint16_t>> out_;  // of each token
};

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

class GatedDeltaTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<GatedDelta>> backends_{one_.backend<GatedDelta>(),
                                             two_.backend<GatedDelta>()};
};

TEST_F(GatedDeltaTest, keeps_its_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.2) << "the bound is far too wide";
}

TEST_F(GatedDeltaTest, gives_the_same_bits_twice_and_on_more_threads) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(GatedDeltaTest, gives_rows_the_same_bits_cut_anywhere) {
  const Heads heads = {1, 2, 32, 80};
  for (const int64_t n : {1, 2, 7, 64, 65}) {
    Timeline whole(heads, n, 0, backends_[0]);
    whole.call(range(0, n), 0, static_cast<int32_t>(n));
    Timeline single(heads, n, 0, backends_[1]);
    for (int64_t t = 0; t < n; ++t) single.call({t}, 0, 1);
    ASSERT_EQ(single.state(), whole.state());
    ASSERT_EQ(single.out(), whole.out());
    for (int64_t cut = 1; cut < n; ++cut) {
      Timeline parts(heads, n, 0, backends_[0]);
      parts.call(range(0, cut), 0, static_cast<int32_t>(cut));
      parts.call(range(cut, n), 0, static_cast<int32_t>(n - cut));
      ASSERT_EQ(parts.state(), whole.state()) << "cut at " << cut << " of " << n;
      ASSERT_EQ(parts.out(), whole.out()) << "cut at " << cut << " of " << n;
    }
  }
}

// Rounds of accepted and rejected rows, the state kept at any accepted row, flushed at the end.
TEST_F(GatedDeltaTest, leaves_no_trace_of_replays_and_rejected_rows) {
  const Heads heads = {2, 2, 16, 24};
  const int64_t n_tokens = 60, n_strangers = 5;
  Timeline plain(heads, n_tokens, n_strangers, backends_[0]);
  plain.call(range(0, n_tokens), 0, static_cast<int32_t>(n_tokens));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SeededRandom random(seed);
    const auto up_to = [&](int64_t n) {
      return static_cast<int64_t>(random.next_u64() % static_cast<uint64_t>(n + 1));
    };
    Timeline rounds(heads, n_tokens, n_strangers, backends_[seed % 2]);
    int64_t stored = 0, done = 0;  // tokens behind the state, tokens accepted
    while (done < n_tokens) {
      const int64_t n_true = std::min(up_to(6), n_tokens - done);
      std::vector<int64_t> packed = range(stored, done + n_true);
      const auto n_replay = static_cast<int32_t>(done - stored);
      for (int64_t i = up_to(n_strangers); i > 0; --i) packed.push_back(n_tokens + i - 1);
      const auto store_after = static_cast<int32_t>(up_to(n_replay + n_true));
      rounds.call(packed, n_replay, store_after);
      stored += store_after;
      done += n_true;
    }
    if (stored < done)
      rounds.call(range(stored, done), static_cast<int32_t>(done - stored),
                  static_cast<int32_t>(done - stored));
    ASSERT_EQ(rounds.state(), plain.state()) << "seed " << seed;
    ASSERT_EQ(rounds.out(), plain.out()) << "seed " << seed;
  }
}

// Rows of several sequences in one call: each as if it were alone.
TEST_F(GatedDeltaTest, keeps_sequences_apart) {
  const Case together = with_spans(make_rows({1, 4, 24, 40}, 12, Fill::kNormal, 5),
                                   {{3, 0, 3}, {2, 2, 3}, {5, 0, 0}});
  Memory memory;
  const GatedDelta want = arrange(together, memory);
  backends_[1].run(want);
  for (const DeltaSpan& span : together.spans) {
    Case alone = together;
    alone.spans = {span};
    for (int64_t slot = 0; slot < alone.n_slots; ++slot) {
      if (slot != span.slot)
        std::fill_n(alone.state.begin() + slot * alone.state_size(), alone.state_size(), NAN);
    }
    Memory other;
    const GatedDelta got = arrange(alone, other);
    backends_[0].run(got);
    EXPECT_EQ(row_difference(got.state, span.slot, want.state, span.slot), "");
    for (int32_t r = span.first_row; r < span.first_row + span.n_new; ++r)
      EXPECT_EQ(row_difference(got.out, r, want.out, r), "");
  }
}

#ifndef ROOST_CONTRACT_CUDA
TEST_F(GatedDeltaTest, plans_its_workspace) {
  CpuMachine small(2, gated_delta_workspace_bytes(2));
  const Backend<GatedDelta> backend = small.backend(gated_delta_cpu);
  Memory memory;
  backend.run(arrange(
      with_spans(make_rows({1, 2, GatedDelta::kKeyDimMax, 70}, 2, Fill::kNormal, 1), {{2, 0, 2}}),
      memory));
}
#endif

TEST_F(GatedDeltaTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

}  // namespace
}  // namespace roost
