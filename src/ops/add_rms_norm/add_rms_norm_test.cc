#include "ops/add_rms_norm/add_rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;

enum class Addition { kNone, kTensor, kExperts, kExpertsAndShared };

struct Case {
  std::string name;
  int64_t n_rows = 0, width = 0;
  Addition addition = Addition::kNone;
  std::vector<double> x, add, weight;
  std::vector<double> y, ids, expert_weights, shared_gate;  // when experts are added
  int64_t n_chosen = 0;
  int n_experts = 0;
  std::vector<double> rows;  // empty: all
  bool has_out = true, has_tap = false;
  int64_t tap_first = 0, tap_behind = 0;  // columns beside it
  float eps = 1e-6f;

  bool has_experts() const { return addition >= Addition::kExperts; }
  int64_t n_slots() const { return n_chosen + (addition == Addition::kExpertsAndShared ? 1 : 0); }
};

AddRmsNorm arrange(const Case& c, Memory& memory) {
  AddRmsNorm op;
  const Shape shape{c.n_rows, c.width};
  op.eps = c.eps;
  op.x = memory.in_out(DType::kBF16, shape, c.x);
  if (c.addition == Addition::kTensor) op.add = memory.input(DType::kBF16, shape, c.add);
  if (c.has_experts()) {
    op.experts.n_experts = c.n_experts;
    op.experts.y = memory.input(DType::kBF16, {c.n_rows, c.n_slots(), c.width}, c.y);
    op.experts.ids = memory.input(DType::kI32, {c.n_rows, c.n_chosen}, c.ids);
    op.experts.weights = memory.input(DType::kF32, {c.n_rows, c.n_chosen}, c.expert_weights);
  }
  if (c.addition == Addition::kExpertsAndShared)
    op.experts.shared_gate = memory.input(DType::kF32, {c.n_rows}, c.shared_gate);
  op.tap_first = c.tap_first;
  if (c.has_tap)
    op.tap = memory.output(DType::kBF16, {c.n_rows, c.tap_first + c.width + c.tap_behind});
  if (!c.has_out) return op;
  op.weight = memory.input(DType::kF32, {c.width}, c.weight);
  const auto n_wanted = static_cast<int64_t>(c.rows.size());
  if (n_wanted > 0) op.rows = memory.input(DType::kI32, {n_wanted}, c.rows);
  op.out = memory.output(DType::kBF16, {n_wanted > 0 ? n_wanted : c.n_rows, c.width});
  return op;
}

// How far the rounded expert sum of element i may be from the reference's: one step of bf16 where
// the error of the f32 sum can cross a rounding border, else nothing.
double expert_slack(const Case& c, int64_t i) {
  if (!c.has_experts()) return 0;
  const int64_t t = i / c.width, col = i % c.width;
  double sum = 0, size = 0;
  for (int64_t s = 0; s < c.n_slots(); ++s) {
    const double w = s < c.n_chosen ? c.expert_weights[static_cast<size_t>(t * c.n_chosen + s)]
                                    : c.shared_gate[static_cast<size_t>(t)];
    const double term = w * c.y[static_cast<size_t>((t * c.n_slots() + s) * c.width + col)];
    sum += term;
    size += std::abs(term);
  }
  const double error = static_cast<double>(c.n_slots() + 3) * 0x1p-24 * size;
  if (bf16_from_f64(sum - error) == bf16_from_f64(sum + error)) return 0;
  return 0x1p-7 * (std::abs(sum) + error);
}

void judge(const Case& c, const AddRmsNorm& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const AddRmsNorm exact = arrange(c, wide);
  add_rms_norm_reference(exact, rules);
  judge.near("x", got.x, exact.x, [&](int64_t i) {
    const bool is_rounded = c.addition != Addition::kNone;
    return (is_rounded ? 0x1p-8 * std::abs(exact.x.get(i)) : 0) + 1.01 * expert_slack(c, i);
  });
  for (int64_t i = 0; c.has_tap && i < got.tap.n_elements(); ++i) {
    const int64_t t = i / got.tap.dim(1), col = i % got.tap.dim(1) - c.tap_first;
    const double tap = got.tap.get(i);
    const bool is_x = col >= 0 && col < c.width;
    if (is_x ? tap != got.x.get(t * c.width + col) : !std::isnan(tap))
      judge.fail("tap: row " + std::to_string(t) + ", column " + std::to_string(col));
  }
  if (!c.has_out) return;

  // The norm's bound is given for the x that was stored.
  Case stored = c;
  stored.addition = Addition::kNone;
  stored.has_tap = false;
  for (size_t i = 0; i < stored.x.size(); ++i) stored.x[i] = got.x.get(static_cast<int64_t>(i));
  Memory wide_out(Memory::Mode::kWide);
  const AddRmsNorm norm = arrange(stored, wide_out);
  add_rms_norm_reference(norm, rules);
  const double share = 0x1p-8 + (static_cast<double>(c.width) / 2 + 8) * 0x1p-24;
  judge.near("out", got.out, norm.out,
             [&](int64_t i) { return share * std::abs(norm.out.get(i)); });
}

std::vector<double> rows_of(const std::vector<double>& all, int64_t n_rows,
                            std::span<const int64_t> rows) {
  const auto width = static_cast<std::ptrdiff_t>(all.size()) / n_rows;
  std::vector<double> part;
  for (const int64_t row : rows)
    part.insert(part.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  return part;
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.n_rows = static_cast<int64_t>(rows.size());
  part.x = rows_of(c.x, c.n_rows, rows);
  part.add = rows_of(c.add, c.n_rows, rows);
  part.y = rows_of(c.y, c.n_rows, rows);
  part.ids = rows_of(c.ids, c.n_rows, rows);
  part.expert_weights = rows_of(c.expert_weights, c.n_rows, rows);
  part.shared_gate = rows_of(c.shared_gate, c.n_rows, rows);
  return part;
}

const Suite<AddRmsNorm, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows; },
    .select = select,
    .row_outputs = [](const AddRmsNorm& op) { return std::vector{op.x, op.out, op.tap}; },
};

void add_experts(Case& c, Fill fill, uint64_t seed, int n_experts, int64_t n_chosen) {
  c.n_experts = n_experts;
  c.n_chosen = n_chosen;
  c.y = values(fill, c.n_rows * c.n_slots() * c.width, seed + 3);
  for (int64_t t = 0; t < c.n_rows; ++t) {
    // n_chosen of n_experts, ascending, spread and not the same for two rows.
    for (int64_t s = 0; s < n_chosen; ++s)
      c.ids.push_back(static_cast<double>((s * n_experts + t % (n_experts / n_chosen)) / n_chosen));
    for (int64_t s = 0; s < n_chosen; ++s)
      c.expert_weights.push_back(static_cast<float>(1.0 / static_cast<double>(3 + s + t)));
    c.shared_gate.push_back(static_cast<float>(0.7 - 0.1 * static_cast<double>(t)));
  }
}

Case make(int64_t n_rows, int64_t width, Addition addition, Fill fill, uint64_t seed) {
  Case c;
  c.n_rows = n_rows;
  c.width = width;
  c.addition = addition;
  c.name = name_of(fill) + " " + std::to_string(n_rows) + "x" + std::to_string(width) +
           " addition " + std::to_string(static_cast<int>(addition));
  c.x = values(fill, n_rows * width, seed);
  c.add = values(fill, n_rows * width, seed + 1);
  // Factors need not be bf16 values.
  for (const double w : values(Fill::kNormal, width, seed + 2))
    c.weight.push_back(static_cast<float>(1 + w / 3));
  if (c.has_experts()) add_experts(c, fill, seed, seed % 2 == 0 ? 32 : 13, seed % 3 == 0 ? 2 : 6);
  c.has_tap = seed % 3 == 1;
  c.tap_first = static_cast<int64_t>(seed % 5) * 3;
  c.tap_behind = static_cast<int64_t>(seed % 2) * 8;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    for (const Addition addition :
         {Addition::kNone, Addition::kTensor, Addition::kExperts, Addition::kExpertsAndShared}) {
      for (const int64_t width : {1, 7, 8, 9, 15, 16, 17, 61, 256, 1027}) {
        all.push_back(make(1 + static_cast<int64_t>(seed % 7), width, addition, fill, seed));
        seed += 1;
      }
    }
  }
  return all;
}

std::vector<Case> cases_with_rows() {
  std::vector<Case> all;
  uint64_t seed = 500;
  for (const std::vector<double>& rows :
       {std::vector<double>{0}, {4}, {3, 1}, {2, 2, 2, 0, 5, 4, 3, 1, 2}}) {
    for (const int64_t width : {5, 64, 129}) {
      all.push_back(make(6, width, Addition::kTensor, Fill::kNormal, seed++));
      all.back().rows = rows;
      all.push_back(make(6, width, Addition::kExpertsAndShared, Fill::kCoordinates, seed++));
      all.back().rows = rows;
    }
  }
  all.push_back(make(5, 40, Addition::kExperts, Fill::kNormal, seed));
  all.back().has_out = false;
  all.back().has_tap = true;
  return all;
}

std::vector<Case> all_cases() {
  std::vector<Case> all = cases();
  for (Case& c : cases_with_rows()) all.push_back(std::move(c));
  return all;
}

std::vector<Fault<AddRmsNorm, Case>> faults() {
  const auto rotate = [](std::vector<double>& list) {
    std::rotate(list.begin(), list.begin() + !list.empty(), list.end());
  };
  return {
      {"eps left out", [](Case& c) { c.eps = 1e-30f; }},
      {"weight read one element late", [rotate](Case& c) { rotate(c.weight); }},
      {"last element of a row dropped from the sum",
       [](Case& c) {
         for (int64_t t = 0; t < c.n_rows; ++t) c.x[static_cast<size_t>((t + 1) * c.width - 1)] = 0;
       }},
      {"addition left out", [](Case& c) { std::fill(c.add.begin(), c.add.end(), 0); }},
      {"expert weights in another order", [rotate](Case& c) { rotate(c.expert_weights); }},
      {"shared expert without its gate",
       [](Case& c) { std::fill(c.shared_gate.begin(), c.shared_gate.end(), 1); }},
      {"last expert left out",
       [](Case& c) {
         for (int64_t t = 0; t < c.n_rows && c.n_chosen > 0; ++t)
           c.expert_weights[static_cast<size_t>((t + 1) * c.n_chosen - 1)] = 0;
       }},
      {"expert weights as bf16",
       [](Case& c) {
         for (double& w : c.expert_weights) w = f32_from_bf16(bf16_from_f64(w));
       }},
      {"norm weight as bf16",
       [](Case& c) {
         for (double& w : c.weight) w = f32_from_bf16(bf16_from_f64(w));
       }},
      {"rows taken in order",
       [](Case& c) {
         for (size_t j = 0; j < c.rows.size(); ++j) c.rows[j] = static_cast<double>(j % 6);
       }},
      {"tap in front of the addition", nullptr,
       [](const AddRmsNorm& op) {
         if (op.tap.exists() && op.add.exists())
           op.tap.set(op.tap_first, op.x.get(0) - op.add.get(0));
       }},
      {"tap one column early", nullptr,
       [](const AddRmsNorm& op) {
         if (op.tap.exists() && op.tap_first > 0) op.tap.set(op.tap_first - 1, op.x.get(0));
       }},
      {"mean over one element too many", nullptr,
       [](const AddRmsNorm& op) {
         const double n = op.x.exists() ? static_cast<double>(op.x.dim(1)) : 1;
         for (int64_t i = 0; op.out.exists() && i < op.out.n_elements(); ++i)
           op.out.set(i, op.out.get(i) * std::sqrt((n + 1) / n));
       }},
      {"one row too many", nullptr,
       [](const AddRmsNorm& op) { op.x.data[op.x.n_bytes()] = std::byte{0}; }},
  };
}

class AddRmsNormTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<AddRmsNorm>> backends_{one_.backend<AddRmsNorm>(),
                                             two_.backend<AddRmsNorm>()};
};

TEST_F(AddRmsNormTest, keeps_the_contract) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, all_cases(), backends_), "");
}

TEST_F(AddRmsNormTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
  // More rows than one item of the pool holds.
  EXPECT_EQ(bits_are_the_rows_own(
                kSuite, {make(37, 100, Addition::kExpertsAndShared, Fill::kNormal, 9)}, backends_),
            "");
}

TEST_F(AddRmsNormTest, a_selected_row_has_the_bits_it_has_without_selection) {
  for (const Case& c : cases_with_rows()) {
    if (c.rows.empty()) continue;
    Case unselected = c;
    unselected.rows.clear();
    Memory memory;
    const AddRmsNorm some = arrange(c, memory), all = arrange(unselected, memory);
    backends_[1].run(some);
    backends_[1].run(all);
    for (size_t j = 0; j < c.rows.size(); ++j)
      EXPECT_EQ(row_difference(some.out, static_cast<int64_t>(j), all.out,
                               static_cast<int64_t>(c.rows[j])),
                "");
  }
}

TEST_F(AddRmsNormTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, all_cases(), backends_[0], faults()), "");
}

TEST(AddRmsNormCheck, experts_out_of_order_are_a_bug) {
  Case c = make(2, 8, Addition::kExperts, Fill::kNormal, 2);
  std::swap(c.ids[0], c.ids[1]);
  Memory memory;
  EXPECT_DEATH(check(arrange(c, memory)), "ids\\[i\\] > ids\\[i - 1\\]");
}

}  // namespace
}  // namespace roost
