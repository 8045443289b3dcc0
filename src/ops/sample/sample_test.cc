#include "ops/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  int64_t n_vocabulary, n_tokens;
  std::vector<double> logits;  // [rows, n_vocabulary]
  std::vector<SampleParams> params;
  std::vector<std::vector<uint32_t>> masks = {};  // of each row, or none; an empty one: null
};

Sample arrange(const Case& c, Memory& memory) {
  const auto n_rows = static_cast<int64_t>(c.params.size());
  std::vector<const uint32_t*> masks;
  for (const std::vector<uint32_t>& mask : c.masks)
    masks.push_back(mask.empty() ? nullptr : memory.list(mask).data());
  return {.logits = memory.input(DType::kF32, {n_rows, c.n_vocabulary}, c.logits),
          .params = memory.list(c.params),
          .n_tokens = c.n_tokens,
          .tokens = memory.output(DType::kI32, {n_rows}),
          .masks = memory.list(masks)};
}

void judge(const Case& c, const Sample& got, const ReferenceRules& rules, Judge& judge) {
  Memory memory;
  const Sample exact = arrange(c, memory);
  sample_reference(exact, rules);
  judge.equal("tokens", got.tokens, exact.tokens);
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.logits.clear();
  part.params.clear();
  part.masks.clear();
  for (const int64_t row : rows) {
    const auto from = c.logits.begin() + row * c.n_vocabulary;
    part.logits.insert(part.logits.end(), from, from + c.n_vocabulary);
    part.params.push_back(c.params[static_cast<size_t>(row)]);
    if (!c.masks.empty()) part.masks.push_back(c.masks[static_cast<size_t>(row)]);
  }
  return part;
}

const Suite<Sample, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return static_cast<int64_t>(c.params.size()); },
    .select = select,
    .row_outputs = [](const Sample& op) { return std::vector{op.tokens}; },
};

// Every filter alone and together, from narrow to wide.
std::vector<SampleParams> many_params() {
  std::vector<SampleParams> all;
  for (const double temperature : {0.0, 1e-4, 0.6, 1.0, 2.5}) {
    for (const int32_t top_k : {0, 1, 3, 20, 700, 100'000}) {
      for (const double top_p : {1.0, 0.0, 0.5, 0.95, 0.9999999}) {
        for (const double min_p : {0.0, 1e-9, 0.05, 1.0}) {
          if (temperature == 0 && (top_k + top_p + min_p) != 1) continue;
          all.push_back({temperature, top_k, top_p, min_p, 7 + all.size() % 3,
                         static_cast<int64_t>(all.size()) * 1001});
        }
      }
    }
  }
  return all;
}

// Logits as models give them: a few high, a broad low mass; ties when rounded to bf16.
std::vector<double> model_logits(int64_t n, uint64_t seed, bool has_ties) {
  std::vector<double> z = uniform(0, 1, n, seed);
  for (size_t i = 0; i < z.size(); ++i) {
    z[i] = std::log(z[i] + 1e-6) * -2 - (i % 3 == 0 ? 4 : 0) + static_cast<double>(i) * 1e-5;
    z[i] = has_ties ? std::round(z[i] * 4) / 4 : static_cast<float>(z[i]);
  }
  return z;
}

Case make(int64_t n_vocabulary, int64_t n_tokens, const std::vector<SampleParams>& params,
          uint64_t seed, bool has_ties) {
  Case c{std::to_string(n_tokens) + " of " + std::to_string(n_vocabulary) +
             (has_ties ? " with ties" : ""),
         n_vocabulary,
         n_tokens,
         {},
         params};
  for (size_t row = 0; row < params.size(); ++row) {
    const std::vector<double> z = model_logits(n_vocabulary, seed + row % 4, has_ties);
    c.logits.insert(c.logits.end(), z.begin(), z.end());
  }
  return c;
}

Case broken_rows() {
  Case c = make(50, 45, std::vector<SampleParams>(8), 3, false);
  for (size_t row = 0; row < 8; ++row) {
    c.params[row].temperature = row % 2 == 0 ? 0 : 1;
    c.params[row].top_p = row < 4 ? 1 : 0.5;
    double* z = &c.logits[row * 50];
    if (row / 2 == 0) z[row * 44] = std::nan("");
    if (row / 2 == 1) z[17] = kInfinity;
    if (row / 2 == 2) std::fill_n(z, 45, -kInfinity);
    if (row / 2 == 3) z[45] = std::nan(""), z[49] = kInfinity, z[3] = -kInfinity;  // padding
  }
  c.name = "rows that are not finite";
  return c;
}

// Masks from one id to nearly all, rows without one between them, and rows that they leave nothing.
Case with_masks(Case c, uint64_t seed) {
  const auto n_words = static_cast<size_t>(c.n_tokens + 31) / 32;
  for (size_t row = 0; row < c.params.size(); ++row) {
    std::vector<uint32_t> mask(row % 5 == 4 ? 0 : n_words);
    for (size_t i = 0; i < mask.size(); ++i) {
      const std::vector<double> draws = uniform(0, 1, 32, seed + row * 1000 + i);
      const double share = row % 5 == 0 ? 0.002 : row % 5 == 1 ? 0.1 : 0.9;
      for (uint32_t bit = 0; bit < 32; ++bit) mask[i] |= uint32_t{draws[bit] < share} << bit;
    }
    c.masks.push_back(std::move(mask));
  }
  c.name += " with masks";
  return c;
}

// What a mask hides still says that the row is broken.
Case broken_behind_masks() {
  Case c = make(70, 66, std::vector<SampleParams>(6), 9, false);
  for (size_t row = 0; row < 6; ++row) {
    c.params[row].temperature = row % 2 == 0 ? 0 : 1;
    c.masks.push_back({~0u << 8, ~0u, 1});
    double* z = &c.logits[row * 70];
    if (row / 2 == 0) z[3] = std::nan("");
    if (row / 2 == 1) z[5] = kInfinity;
    if (row / 2 == 2) std::fill_n(z + 8, 58, -kInfinity);
  }
  c.name = "rows broken behind their masks";
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const auto& [n_vocabulary, n_tokens] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {8, 8}, {33, 33}, {1009, 1000}}) {
    for (const bool has_ties : {false, true})
      all.push_back(make(n_vocabulary, n_tokens, many_params(), seed += 10, has_ties));
  }
  all.push_back(broken_rows());
  all.push_back(broken_behind_masks());
  for (const int64_t n_tokens : {5, 64, 1000})
    all.push_back(with_masks(make(n_tokens + 9, n_tokens, many_params(), 70, n_tokens == 64), 8));
  for (const Fill fill : kFills) {
    Case c = make(515, 515, many_params(), 1, false);
    c.logits = values(fill, static_cast<int64_t>(c.logits.size()), seed++);
    c.name = name_of(fill);
    all.push_back(c);
  }
  Case masked = make(9000, 8999, many_params(), 5, true);
  masked.params.resize(150);
  masked.logits.resize(150 * 9000);
  for (size_t i = 0; i < masked.logits.size(); ++i) {
    if (i % 11 != 4) masked.logits[i] = -kInfinity;
    if (i % 33 == 4) masked.logits[i] = i % 2 == 0 ? 0.0 : -0.0;
  }
  masked.name = "mostly masked, zeros of both signs";
  all.push_back(masked);
  return all;
}

std::vector<Fault<Sample, Case>> faults() {
  const auto each = [](auto change) {
    return [change](Case& c) {
      for (SampleParams& p : c.params) change(p);
    };
  };
  return {
      {"last token left out",
       [](Case& c) {
         const auto last = static_cast<size_t>(c.n_tokens - 1);
         for (size_t at = last; at < c.logits.size(); at += static_cast<size_t>(c.n_vocabulary))
           c.logits[at] = -1e30;
       }},
      {"padding drawn", [](Case& c) { c.n_tokens = c.n_vocabulary; }},
      {"ties to the higher id",
       [](Case& c) {
         for (size_t i = 0; i < c.logits.size(); ++i)
           c.logits[i] += 1e-4 * static_cast<double>(static_cast<int64_t>(i) % c.n_vocabulary);
       }},
      {"top_k one too many", each([](SampleParams& p) { p.top_k += p.top_k > 0; })},
      {"top_p prefix without the token that reaches it",
       each([](SampleParams& p) { p.top_p -= p.top_p > 0.5 ? 0.1 : 0; })},
      {"min_p forgotten", each([](SampleParams& p) { p.min_p = 0; })},
      {"min_p against temperature 1", each([](SampleParams& p) {
         p.min_p = std::pow(p.min_p, 1 / std::max(p.temperature, 0.1));
       })},
      {"temperature forgotten",
       each([](SampleParams& p) { p.temperature = p.temperature == 0 ? 0 : 1; })},
      {"greedy drawn", each([](SampleParams& p) { p.temperature += p.temperature == 0; })},
      {"position off by one", each([](SampleParams& p) { p.position += 1; })},
      {"seed ignored", each([](SampleParams& p) { p.seed = 0; })},
      {"masks ignored", [](Case& c) { c.masks.clear(); }},
      {"the mask of another row",
       [](Case& c) {
         if (!c.masks.empty()) std::rotate(c.masks.begin(), c.masks.begin() + 1, c.masks.end());
       }},
      {"a mask one id late",
       [](Case& c) {
         for (std::vector<uint32_t>& mask : c.masks)
           for (uint32_t& word : mask) word = word << 1 | word >> 31;
       }},
      {"a mask's last word ignored",
       [](Case& c) {
         for (std::vector<uint32_t>& mask : c.masks)
           if (!mask.empty()) mask.back() = 0;
       }},
      {"what a mask hides not looked at",
       [](Case& c) {
         for (size_t i = 0; i < c.logits.size() && !c.masks.empty(); ++i)
           if (!(c.logits[i] < kInfinity)) c.logits[i] = 0;
       }},
      {"the row of a neighbour", nullptr,
       [](const Sample& op) {
         if (op.tokens.dim(0) > 1) op.tokens.set(0, op.tokens.get(1));
       }},
      {"a row that is not finite answered", nullptr,
       [](const Sample& op) {
         for (int64_t i = 0; i < op.tokens.dim(0); ++i)
           if (op.tokens.get(i) < 0) op.tokens.set(i, 0);
       }},
      {"one row too many", nullptr,
       [](const Sample& op) { op.tokens.data[op.tokens.n_bytes()] = std::byte{0}; }},
  };
}

class SampleTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<Sample>> backends_{one_.backend<Sample>(), two_.backend<Sample>()};
};

TEST_F(SampleTest, gives_the_token_of_the_reference) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
}

TEST_F(SampleTest, what_a_mask_hides_is_as_if_it_were_minus_infinity) {
  Case masked = with_masks(make(515, 500, many_params(), 21, true), 33);
  Case plain = masked;
  for (size_t row = 0; row < plain.params.size(); ++row) {
    for (size_t id = 0; id < 500 && !plain.masks[row].empty(); ++id)
      if (((plain.masks[row][id / 32] >> (id % 32)) & 1) == 0)
        plain.logits[row * 515 + id] = -kInfinity;
  }
  plain.masks.clear();
  Memory memory;
  const Sample with = arrange(masked, memory), without = arrange(plain, memory);
  backends_[1].run(with);
  backends_[1].run(without);
  for (int64_t row = 0; row < with.tokens.dim(0); ++row)
    EXPECT_EQ(with.tokens.get(row), without.tokens.get(row)) << row;
}

TEST_F(SampleTest, gives_the_token_of_the_reference_at_the_served_vocabulary) {
  const std::vector<SampleParams> params = {
      {0, 0, 1, 0, 0, 0},          {1, 0, 1, 0, 3, 77},       {1, 20, 0.95, 0, 1, 12},
      {0.7, 0, 0.8, 0, 1, 13},     {1.3, 0, 1, 0.02, 2, 9},   {0.6, 50'000, 0.999, 1e-5, 4, 5},
      {2, 0, 0.9999, 0, 5, 1'000}, {1, 20, 1, 0.1, 6, 1'001},
  };
  for (const bool has_ties : {false, true}) {
    const Case c = make(248'320, 248'077, params, 40, has_ties);
    EXPECT_EQ(kernel_keeps_contract(kSuite, {c}, {backends_[1]}), "");
    if (has_ties) {
      const Case two = select(c, std::vector<int64_t>{2, 3});
      EXPECT_EQ(bits_are_the_rows_own(kSuite, {two}, backends_), "");
    }
  }
}

TEST_F(SampleTest, gives_a_row_the_same_token_in_any_company) {
  std::vector<Case> some = cases();
  for (Case& c : some) {  // a regrouping runs every row anew: a part of them is enough
    c.params.resize(std::min<size_t>(c.params.size(), 24));
    if (!c.masks.empty()) c.masks.resize(c.params.size());
    c.logits.resize(c.params.size() * static_cast<size_t>(c.n_vocabulary));
  }
  EXPECT_EQ(bits_are_the_rows_own(kSuite, some, backends_), "");
}

TEST_F(SampleTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

// The hash and the noise, written a second time.
double noise_by_the_formula(uint64_t seed, uint64_t position, uint64_t id) {
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  };
  const uint64_t outer = mix(seed + 0x9E3779B97F4A7C15u) ^ (position * 0xD1B54A32D192ED03u);
  const uint64_t x = mix(mix(outer) ^ id);
  return -std::log(-std::log(std::ldexp(static_cast<double>(x >> 11), -53) + std::ldexp(1, -54)));
}

TEST(SampleNoise, the_noise_is_the_contracts_function_of_seed_position_and_id) {
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (int64_t position : {int64_t{0}, int64_t{1}, int64_t{262'143}, int64_t{1} << 40}) {
      for (int32_t id : {0, 1, 248'076, INT32_MAX})
        EXPECT_EQ(
            gumbel_noise(seed, position, id),
            noise_by_the_formula(seed, static_cast<uint64_t>(position), static_cast<uint64_t>(id)));
    }
  }
}

TEST_F(SampleTest, draws_follow_the_softmax) {
  // 20,000 positions over four tokens of probabilities 0.1, 0.2, 0.3, 0.4.
  constexpr int64_t kDraws = 20'000;
  Case c{"frequencies", 4, 4, {}, {}};
  for (int64_t position = 0; position < kDraws; ++position) {
    c.params.push_back({2, 0, 1, 0, 42, position});
    for (int i = 1; i <= 4; ++i) c.logits.push_back(2 * std::log(i));
  }
  Memory memory;
  const Sample op = arrange(c, memory);
  backends_[1].run(op);
  std::array<double, 4> n_drawn{};
  for (int64_t row = 0; row < kDraws; ++row) n_drawn[static_cast<size_t>(op.tokens.get(row))] += 1;
  for (size_t i = 0; i < 4; ++i) {
    const double p = 0.1 * static_cast<double>(i + 1);
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(n_drawn[i], p * kDraws, 5 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST(SampleCheck, a_share_above_one_is_a_bug) {
  Case c = make(4, 4, {{1, 0, 1.5, 0, 0, 0}}, 1, false);
  Memory memory;
  EXPECT_DEATH(check(arrange(c, memory)), "top_p <= 1");
}

}  // namespace
}  // namespace roost
