#include "ops/moe_experts/moe_experts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"
#include "tests/contract/products.h"

namespace roost {
namespace {

using namespace contract;

struct Mlp {
  MatrixValues gate, up, down;
};

struct Case {
  std::string name;
  int64_t n_rows = 0, hidden = 0, n_chosen = 0;
  std::vector<double> x, ids;
  std::vector<Mlp> experts;
  std::vector<Mlp> shared;  // one or none

  int64_t n_slots() const { return n_chosen + std::ssize(shared); }
  const Mlp& mlp_of(int64_t row, int64_t slot) const {
    if (slot == n_chosen) return shared[0];
    return experts[static_cast<size_t>(ids[static_cast<size_t>(row * n_chosen + slot)])];
  }
};

MoeExperts arrange(const Case& c, Memory& memory) {
  const auto place = [&](const std::vector<Mlp>& mlps) {
    std::vector<GatedMlp> placed;
    for (const Mlp& m : mlps)
      placed.push_back({memory.matrix(m.gate), memory.matrix(m.up), memory.matrix(m.down)});
    return memory.list(std::move(placed));
  };
  MoeExperts op;
  op.x = memory.input(DType::kBF16, {c.n_rows, c.hidden}, c.x);
  op.ids = memory.input(DType::kI32, {c.n_rows, c.n_chosen}, c.ids);
  op.experts = place(c.experts);
  op.shared = c.shared.empty() ? nullptr : place(c.shared).data();
  op.y = memory.output(DType::kBF16, {c.n_rows, c.n_slots(), c.hidden});
  return op;
}

// The inner row of one expert: exact values rounded to bf16, and how far the kernel's may be off.
struct Inner {
  std::vector<double> values, slack;
};

Inner inner_row(const Mlp& mlp, std::span<const double> x, const ReferenceRules& rules) {
  const std::vector<double> row(x.begin(), x.end());
  const std::vector<double> x_gate = as_read(row, mlp.gate, rules);
  const std::vector<double> x_up = as_read(row, mlp.up, rules);
  Inner inner;
  double largest = 0, largest_slack = 0;
  for (int64_t j = 0; j < mlp.gate.n_out; ++j) {
    const Bounded value =
        swiglu(product(mlp.gate, j, x_gate, rules), product(mlp.up, j, x_up, rules));
    inner.values.push_back(f32_from_bf16(bf16_from_f64(value.exact)));
    inner.slack.push_back(rounding_slack(value));
    if (std::abs(inner.values.back()) > largest) {
      largest = std::abs(inner.values.back());
      largest_slack = inner.slack.back();
    }
  }
  // An input that is off by a step may be rounded to the row's 16-bit grid the other way; when the
  // largest one is off, the grid itself may be another.
  const double grid = largest * 0x1p-13;
  for (double& slack : inner.slack) {
    if (slack > 0 || largest_slack > 0) slack += grid;
  }
  return inner;
}

// The bound of y[row, slot, :]: the down product's, and what the inner row's slack can do to it.
std::vector<double> errors(const Mlp& mlp, std::span<const double> x, const ReferenceRules& rules) {
  const Inner inner = inner_row(mlp, x, rules);
  const std::vector<double> read = as_read(inner.values, mlp.down, rules);
  std::vector<double> all;
  for (int64_t i = 0; i < mlp.down.n_out; ++i) {
    double error = product(mlp.down, i, read, rules).error * 1.01;
    for (size_t j = 0; j < inner.slack.size(); ++j) {
      if (inner.slack[j] > 0)
        error += inner.slack[j] * std::abs(mlp.down.at(i, static_cast<int64_t>(j)));
    }
    all.push_back(error);
  }
  return all;
}

void judge(const Case& c, const MoeExperts& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const MoeExperts exact = arrange(c, wide);
  moe_experts_reference(exact, rules);
  std::vector<double> error;
  for (int64_t place = 0; place < c.n_rows * c.n_slots(); ++place) {
    const int64_t row = place / c.n_slots();
    const auto x =
        std::span(c.x).subspan(static_cast<size_t>(row * c.hidden), static_cast<size_t>(c.hidden));
    const std::vector<double> part = errors(c.mlp_of(row, place % c.n_slots()), x, rules);
    error.insert(error.end(), part.begin(), part.end());
  }
  judge.near("y", got.y, exact.y, [&](int64_t i) {
    return 0x1p-8 * std::abs(exact.y.get(i)) + error[static_cast<size_t>(i)];
  });
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.n_rows = static_cast<int64_t>(rows.size());
  part.x.clear();
  part.ids.clear();
  for (const int64_t row : rows) {
    part.x.insert(part.x.end(), c.x.begin() + row * c.hidden, c.x.begin() + (row + 1) * c.hidden);
    part.ids.insert(part.ids.end(), c.ids.begin() + row * c.n_chosen,
                    c.ids.begin() + (row + 1) * c.n_chosen);
  }
  return part;
}

const Suite<MoeExperts, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows; },
    .select = select,
    .row_outputs = [](const MoeExperts& op) { return std::vector{op.y}; },
};

struct Formats {
  MatrixFormat gate, up, down;
};

Mlp make_mlp(const Formats& formats, int64_t width, int64_t hidden, Fill fill, uint64_t seed) {
  return {matrix_values(formats.gate, width, hidden, fill, seed),
          matrix_values(formats.up, width, hidden, fill, seed + 1),
          matrix_values(formats.down, hidden, width, fill, seed + 2)};
}

struct Sizes {
  int64_t n_rows, hidden, width, shared_width;  // shared_width 0: no shared expert
  int64_t n_experts, n_chosen;
};

Case make(const Sizes& sizes, const Formats& formats, Fill fill, uint64_t seed) {
  Case c;
  c.n_rows = sizes.n_rows;
  c.hidden = sizes.hidden;
  c.n_chosen = sizes.n_chosen;
  c.name = name_of(formats.gate) + " " + name_of(formats.up) + " " + name_of(formats.down) + " " +
           name_of(fill) + ", " + std::to_string(sizes.n_rows) + " rows";
  c.x = values(fill, sizes.n_rows * sizes.hidden, seed);
  const Fill weights = fill == Fill::kHuge ? Fill::kNormal : fill;
  for (int64_t e = 0; e < sizes.n_experts; ++e)
    c.experts.push_back(make_mlp(formats, sizes.width, sizes.hidden, weights,
                                 seed * 100 + static_cast<uint64_t>(e) * 3));
  if (sizes.shared_width > 0)
    c.shared.push_back(
        make_mlp(formats, sizes.shared_width, sizes.hidden, weights, seed * 100 + 99));
  // Ascending, unlike from row to row; some experts have no row, some have many.
  for (int64_t t = 0; t < sizes.n_rows; ++t) {
    for (int64_t s = 0; s < sizes.n_chosen; ++s) {
      const int64_t span = sizes.n_experts / sizes.n_chosen;
      c.ids.push_back(static_cast<double>(s * span + t * t % span));
    }
  }
  return c;
}

constexpr MatrixFormat affine(int bits, int group, DType dtype = DType::kBF16) {
  return {QuantMatrix::Format::kAffine, bits, group, dtype};
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  constexpr int64_t kRows[] = {1, 2, 5, 9, 13};
  for (const MatrixFormat& format : all_formats()) {
    const bool is_plain = format.format == QuantMatrix::Format::kPlain;
    const Sizes sizes{.n_rows = kRows[seed % std::size(kRows)],
                      .hidden = is_plain ? 37 : format.group * (1 + static_cast<int64_t>(seed % 2)),
                      .width = is_plain ? 21 : format.group,
                      .shared_width = seed % 3 == 0 ? 0 : (is_plain ? 33 : format.group * 2),
                      .n_experts = 7,
                      .n_chosen = 3};
    all.push_back(make(sizes, {format, format, format}, kFills[seed % std::size(kFills)], seed));
    seed += 1;
  }
  const MatrixFormat plain{QuantMatrix::Format::kPlain, 0, 1, DType::kF32};
  for (const Fill fill : kFills) {
    all.push_back(make({17, 128, 64, 96, 16, 8}, {affine(4, 32), affine(4, 32), affine(3, 32)},
                       fill, seed++));
    all.push_back(make({6, 96, 40, 0, 4, 4}, {affine(2, 32), affine(8, 32), plain}, fill, seed++));
    all.push_back(make({3, 64, 64, 64, 1, 1}, {plain, affine(6, 64), affine(5, 64)}, fill, seed++));
  }
  return all;
}

std::vector<Fault<MoeExperts, Case>> faults() {
  const auto each = [](auto change) {
    return [change](Case& c) {
      for (Mlp& mlp : c.experts) change(mlp);
      for (Mlp& mlp : c.shared) change(mlp);
    };
  };
  return {
      {"the weights of the next expert",
       [](Case& c) { std::rotate(c.experts.begin(), c.experts.begin() + 1, c.experts.end()); }},
      {"slots in another order",
       [](Case& c) {
         if (c.n_chosen > 1) std::swap(c.ids[0], c.ids[1]);
       }},
      {"gate and up swapped", each([](Mlp& mlp) { std::swap(mlp.gate, mlp.up); })},
      {"the shared expert is the first routed one",
       [](Case& c) {
         if (!c.shared.empty() && c.shared[0].gate.n_out == c.experts[0].gate.n_out)
           c.shared[0] = c.experts[0];
       }},
      {"rows of the input in another order",
       [](Case& c) { std::rotate(c.x.begin(), c.x.begin() + c.hidden, c.x.end()); }},
      {"last input dropped",
       [](Case& c) {
         for (int64_t t = 1; t <= c.n_rows; ++t) c.x[static_cast<size_t>(t * c.hidden - 1)] = 0;
       }},
      {"last inner value dropped", each([](Mlp& mlp) {
         // Its up weights are zero, hence the product with the gate is.
         const auto n_in = static_cast<size_t>(mlp.up.n_in);
         if (mlp.up.plain.size() >= n_in) std::fill_n(mlp.up.plain.end() - mlp.up.n_in, n_in, 0);
         if (mlp.up.codes.size() < n_in) return;
         const auto n_groups = mlp.up.n_in / mlp.up.format.group;
         std::fill_n(mlp.up.scales.end() - n_groups, n_groups, 0);
         std::fill_n(mlp.up.biases.end() - n_groups, n_groups, 0);
       })},
      {"down codes of the next output", each([](Mlp& mlp) {
         if (!mlp.down.codes.empty())
           std::rotate(mlp.down.codes.begin(), mlp.down.codes.begin() + mlp.down.n_in,
                       mlp.down.codes.end());
       })},
      {"down bias left out",
       each([](Mlp& mlp) { std::fill(mlp.down.biases.begin(), mlp.down.biases.end(), 0); })},
      {"one slot not written", nullptr,
       [](const MoeExperts& op) { op.y.set(op.y.n_elements() - 1, NAN); }},
      {"one row too many", nullptr,
       [](const MoeExperts& op) { op.y.data[op.y.n_bytes()] = std::byte{0}; }},
      {"ids changed", nullptr, [](const MoeExperts& op) { op.ids.set(0, op.ids.get(0) + 1); }},
  };
}

class MoeExpertsTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<MoeExperts>> backends_{one_.backend<MoeExperts>(),
                                             two_.backend<MoeExperts>()};
};

TEST_F(MoeExpertsTest, keeps_the_contract_in_every_format) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
}

TEST_F(MoeExpertsTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(MoeExpertsTest, gives_a_row_the_same_bits_when_hundreds_choose_its_expert) {
  const Case c = make({261, 64, 32, 64, 4, 2}, {affine(4, 32), affine(4, 32), affine(4, 32)},
                      Fill::kNormal, 5);
  EXPECT_EQ(kernel_keeps_contract(kSuite, {c}, backends_), "");
  EXPECT_EQ(bits_are_the_rows_own(kSuite, {c}, backends_), "");
}

TEST_F(MoeExpertsTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

// A slot is what two products of quant_linear give, to the bit.
TEST_F(MoeExpertsTest, a_slot_has_the_bits_of_quant_linear) {
  const Case c = cases()[3];
  Memory memory;
  const MoeExperts op = arrange(c, memory);
  backends_[0].run(op);
  const Backend<QuantLinear> linear = two_.backend<QuantLinear>();
  for (int64_t t = 0; t < c.n_rows; ++t) {
    for (int64_t s = 0; s < c.n_chosen; ++s) {
      const GatedMlp& mlp = op.experts[static_cast<size_t>(op.ids.get(t * c.n_chosen + s))];
      const Tensor inner = memory.output(DType::kBF16, {1, mlp.gate.n_out});
      const Tensor y = memory.output(DType::kBF16, {1, c.hidden});
      linear.run({op.x.rows(t, 1),
                  {LinearPart{&mlp.gate, inner}, LinearPart{&mlp.up, {}}},
                  2,
                  Epilogue::kSwiGlu});
      linear.run({inner, {LinearPart{&mlp.down, y}}, 1, Epilogue::kNone});
      EXPECT_EQ(row_difference(op.y.at(t), s, y, 0), "");
    }
  }
}

TEST(MoeExpertsCheck, an_expert_behind_the_last_is_a_bug) {
  Case c =
      make({1, 32, 32, 0, 2, 1}, {affine(4, 32), affine(4, 32), affine(4, 32)}, Fill::kNormal, 1);
  c.ids[0] = 2;
  Memory memory;
  EXPECT_DEATH(check(arrange(c, memory)), "id < n_experts");
}

}  // namespace
}  // namespace roost
