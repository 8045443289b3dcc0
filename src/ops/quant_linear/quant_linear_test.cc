#include "ops/quant_linear/quant_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"
#include "tests/contract/products.h"

namespace roost {
namespace {

using namespace contract;

struct Part {
  MatrixValues w;
  bool is_f32 = false;
  ProductTree tree = ProductTree::kChain;
};

struct Case {
  std::string name;
  int64_t n_rows = 0;
  std::vector<double> x;
  std::vector<Part> parts;
  Epilogue epilogue = Epilogue::kNone;
  bool misaligned = true;

  int64_t n_in() const { return parts[0].w.n_in; }
};

QuantLinear arrange(const Case& c, Memory& memory) {
  QuantLinear op;
  op.x = memory.input(DType::kBF16, {c.n_rows, c.n_in()}, c.x);
  op.n_parts = static_cast<int>(c.parts.size());
  op.epilogue = c.epilogue;
  std::vector<QuantMatrix> matrices;
  for (const Part& part : c.parts) matrices.push_back(memory.matrix(part.w, c.misaligned));
  const std::span<const QuantMatrix> kept = memory.list(std::move(matrices));
  for (size_t p = 0; p < kept.size(); ++p) {
    op.parts[p].w = &kept[p];
    op.parts[p].tree = c.parts[p].tree;
    if (c.epilogue == Epilogue::kSwiGlu && p == 1) continue;
    op.parts[p].y = memory.output(c.parts[p].is_f32 ? DType::kF32 : DType::kBF16,
                                  {c.n_rows, c.parts[p].w.n_out});
  }
  return op;
}

// Errors in front of the rounding of y, for part p.
std::vector<double> errors(const Case& c, size_t p, const ReferenceRules& rules) {
  const MatrixValues& w = c.parts[p].w;
  const bool is_pair = c.epilogue == Epilogue::kSwiGlu;
  const std::vector<double> x = as_read(c.x, w, rules);
  const std::vector<double> x_up = is_pair ? as_read(c.x, c.parts[1].w, rules) : x;
  const auto n_in = static_cast<size_t>(c.n_in());
  std::vector<double> all;
  for (size_t t = 0; t < static_cast<size_t>(c.n_rows); ++t) {
    for (int64_t r = 0; r < w.n_out; ++r) {
      Bounded y = product(w, r, std::span(x).subspan(t * n_in, n_in), rules);
      if (is_pair)
        y = swiglu(y, product(c.parts[1].w, r, std::span(x_up).subspan(t * n_in, n_in), rules));
      all.push_back(y.error);
    }
  }
  return all;
}

void judge(const Case& c, const QuantLinear& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const QuantLinear exact = arrange(c, wide);
  quant_linear_reference(exact, rules);
  for (size_t p = 0; p < c.parts.size(); ++p) {
    if (!got.parts[p].y.exists()) continue;
    const std::vector<double> error = errors(c, p, rules);
    const Tensor& y = exact.parts[p].y;
    judge.near("y" + std::to_string(p), got.parts[p].y, y, [&](int64_t i) {
      return (c.parts[p].is_f32 ? 0 : 0x1p-8 * std::abs(y.get(i))) + error[static_cast<size_t>(i)];
    });
  }
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.n_rows = static_cast<int64_t>(rows.size());
  part.x.clear();
  for (const int64_t row : rows)
    part.x.insert(part.x.end(), c.x.begin() + row * c.n_in(), c.x.begin() + (row + 1) * c.n_in());
  return part;
}

const Suite<QuantLinear, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows; },
    .select = select,
    .row_outputs =
        [](const QuantLinear& op) {
          std::vector<Tensor> outputs;
          for (const LinearPart& part : op.parts) outputs.push_back(part.y);
          return outputs;
        },
};

Case make(int64_t n_rows, const MatrixFormat& format, int64_t n_out, int64_t n_in, Fill fill,
          uint64_t seed) {
  Case c;
  c.name = name_of(format) + " " + name_of(fill) + " " + std::to_string(n_rows) + " rows, " +
           std::to_string(n_out) + "x" + std::to_string(n_in);
  c.n_rows = n_rows;
  c.x = values(fill, n_rows * n_in, seed);
  c.parts = {
      {matrix_values(format, n_out, n_in, fill == Fill::kHuge ? Fill::kNormal : fill, seed + 1),
       seed % 2 == 0}};
  return c;
}

// Every format at three shapes; rows around eight, outputs around the tile of 32, groups around the
// lanes of a vector.
std::vector<Case> single_cases() {
  constexpr int64_t kRows[] = {1, 2, 3, 5, 7, 8, 9, 17};
  constexpr int64_t kOutputs[] = {1, 5, 31, 32, 33, 67};
  constexpr int64_t kGroups[] = {1, 2, 3, 7, 8, 9, 17};
  constexpr int64_t kPlainInputs[] = {1, 7, 8, 9, 15, 16, 17, 31, 100, 257};
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const MatrixFormat& format : all_formats()) {
    const bool is_plain = format.format == QuantMatrix::Format::kPlain;
    for (size_t shape = 0; shape < (is_plain ? std::size(kPlainInputs) : 3); ++shape) {
      const int64_t n_in =
          is_plain ? kPlainInputs[shape] : kGroups[seed % std::size(kGroups)] * format.group;
      all.push_back(make(kRows[seed % std::size(kRows)], format,
                         kOutputs[seed % std::size(kOutputs)], n_in,
                         kFills[seed % std::size(kFills)], seed));
      all.back().misaligned = seed % 4 != 0;
      seed += 1;
    }
  }
  return all;
}

std::vector<Case> joint_cases() {
  const auto affine = [](int bits, int group, DType dtype = DType::kBF16) {
    return MatrixFormat{QuantMatrix::Format::kAffine, bits, group, dtype};
  };
  const MatrixFormat plain{QuantMatrix::Format::kPlain, 0, 1, DType::kBF16};
  std::vector<Case> all;
  uint64_t seed = 1000;
  for (const Fill fill : kFills) {
    Case four = make(6, affine(4, 64), 70, 384, fill, seed++);
    four.parts.push_back({matrix_values(affine(4, 64), 33, 384, fill, seed++), true});
    four.parts.push_back({matrix_values(affine(8, 32, DType::kF32), 3, 384, fill, seed++), true});
    four.parts.push_back({matrix_values(plain, 1, 384, fill, seed++), false});
    four.name = "four parts, " + name_of(fill);
    all.push_back(four);
    for (const auto& [gate, up] : {std::pair{affine(4, 64), affine(4, 64)},
                                   {affine(2, 32), affine(3, 128)},
                                   {plain, plain},
                                   {affine(8, 64), plain}}) {
      Case pair = make(5, gate, 37, 256, fill, seed++);
      pair.epilogue = Epilogue::kSwiGlu;
      pair.parts[0].is_f32 = false;
      pair.parts.push_back({matrix_values(up, 37, 256, fill, seed++), false});
      pair.name = "pair " + name_of(gate) + " " + name_of(up) + ", " + name_of(fill);
      all.push_back(pair);
    }
    Case quarters = make(10, affine(4, 64), 66, 512, fill, seed++);
    quarters.parts[0].tree = ProductTree::kQuarters;
    quarters.name = "quarters, " + name_of(fill);
    all.push_back(quarters);
  }
  return all;
}

// Rows whose scale is at the edges of the rule.
Case edge_rows() {
  Case c = make(6, {QuantMatrix::Format::kAffine, 4, 64, DType::kBF16}, 9, 128, Fill::kNormal, 2);
  for (size_t i = 0; i < 128; ++i) {
    c.x[i] = 0;
    c.x[128 + i] *= i == 77 ? 4096 : 1;  // an outlier takes most bits of the others
    c.x[2 * 128 + i] = std::ldexp(1 - 2 * static_cast<double>(i % 2), 3);  // exactly a power of two
    c.x[3 * 128 + i] *= 0x1p-110;  // below the smallest scale
    c.x[4 * 128 + i] *= 0x1p100;
  }
  c.x[5 * 128 + 3] = std::numeric_limits<double>::infinity();
  c.name = "rows at the edges of the rule";
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all = single_cases();
  for (Case& c : joint_cases()) all.push_back(std::move(c));
  all.push_back(edge_rows());
  return all;
}

std::vector<Fault<QuantLinear, Case>> faults() {
  const auto each = [](auto change) {
    return [change](Case& c) {
      for (Part& part : c.parts) change(part.w);
    };
  };
  const auto rotate = [](auto& list, int64_t n) {
    if (!list.empty()) std::rotate(list.begin(), list.begin() + n % std::ssize(list), list.end());
  };
  return {
      {"bias left out",
       each([](MatrixValues& w) { std::fill(w.biases.begin(), w.biases.end(), 0); })},
      {"scale of the next group", each([=](MatrixValues& w) { rotate(w.scales, 1); })},
      {"codes one input late", each([=](MatrixValues& w) { rotate(w.codes, 1); })},
      {"codes of the next output",
       each([=](MatrixValues& w) { rotate(w.codes, w.n_in), rotate(w.plain, w.n_in); })},
      {"top bit of every code lost", each([](MatrixValues& w) {
         for (uint32_t& code : w.codes) code &= (1u << (w.format.bits - 1)) - 1;
       })},
      {"scales as bf16", each([](MatrixValues& w) {
         for (double& scale : w.scales) scale = f32_from_bf16(bf16_from_f64(scale));
       })},
      {"last input dropped",
       [](Case& c) {
         for (size_t t = 1; t <= static_cast<size_t>(c.n_rows); ++t)
           c.x[t * static_cast<size_t>(c.n_in()) - 1] = 0;
       }},
      {"activations as 8-bit integers",
       [](Case& c) {
         double largest = 0;
         for (const double value : c.x) largest = std::max(largest, std::abs(value));
         for (double& value : c.x) value = std::round(value / largest * 127) / 127 * largest;
       }},
      {"rows of the input in another order", [rotate](Case& c) { rotate(c.x, c.n_in()); }},
      {"gate and up swapped",
       [](Case& c) {
         if (c.epilogue == Epilogue::kSwiGlu) std::swap(c.parts[0].w, c.parts[1].w);
       }},
      {"silu left out", nullptr,
       [](const QuantLinear& op) {
         if (op.epilogue != Epilogue::kSwiGlu) return;
         Memory memory;
         const Tensor gate = memory.output(DType::kF64, op.parts[0].y.shape);
         QuantLinear alone{op.x, {LinearPart{op.parts[0].w, gate}}, 1, Epilogue::kNone};
         quant_linear_reference(alone, {});
         for (int64_t i = 0; i < gate.n_elements(); ++i)
           op.parts[0].y.set(i, op.parts[0].y.get(i) * (1 + std::exp(-gate.get(i))));
       }},
      {"an f32 output rounded to bf16", nullptr,
       [](const QuantLinear& op) {
         const Tensor& y = op.parts[0].y;
         for (int64_t i = 0; y.dtype == DType::kF32 && i < y.n_elements(); ++i)
           y.set(i, f32_from_bf16(bf16_from_f64(y.get(i))));
       }},
      {"last output not written", nullptr,
       [](const QuantLinear& op) { op.parts[0].y.set(op.parts[0].y.n_elements() - 1, NAN); }},
      {"one row too many", nullptr,
       [](const QuantLinear& op) { op.parts[0].y.data[op.parts[0].y.n_bytes()] = std::byte{0}; }},
  };
}

class QuantLinearTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<QuantLinear>> backends_{one_.backend<QuantLinear>(),
                                              two_.backend<QuantLinear>()};
};

TEST_F(QuantLinearTest, keeps_the_contract_in_every_format) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
}

TEST_F(QuantLinearTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(QuantLinearTest, gives_a_row_the_same_bits_among_hundreds) {
  for (const int bits : {4, 5}) {
    const Case c = make(259, {QuantMatrix::Format::kAffine, bits, 64, DType::kBF16}, 40, 192,
                        Fill::kNormal, 6);
    EXPECT_EQ(kernel_keeps_contract(kSuite, {c}, backends_), "");
    EXPECT_EQ(bits_are_the_rows_own(kSuite, {c}, backends_), "");
  }
}

#ifdef ROOST_CONTRACT_CUDA
// Four products over the quarters of the inputs, added by hand; and a chain is not that.
TEST_F(QuantLinearTest, adds_quarters_in_their_tree) {
  const MatrixFormat plain{QuantMatrix::Format::kPlain, 0, 1, DType::kBF16};
  for (const int64_t n_rows : {3, 20, 70}) {
    Case whole = make(n_rows, plain, 65, 1024, Fill::kNormal, 30);
    whole.parts[0] = {whole.parts[0].w, true, ProductTree::kQuarters};
    const auto result = [&](const Case& c) {
      Memory memory;
      const QuantLinear op = arrange(c, memory);
      backends_[0].run(op);
      const float* y = op.parts[0].y.as<float>();
      return std::vector<float>(y, y + op.parts[0].y.n_elements());
    };
    const auto cut = [](const std::vector<double>& list, size_t quarter) {
      std::vector<double> columns;
      for (size_t at = quarter * 256; at < list.size(); at += 1024)
        columns.insert(columns.end(), list.begin() + static_cast<std::ptrdiff_t>(at),
                       list.begin() + static_cast<std::ptrdiff_t>(at + 256));
      return columns;
    };
    std::vector<float> parts[4];
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      Case part = whole;
      part.x = cut(whole.x, quarter);
      part.parts[0].w.n_in = 256;
      part.parts[0].w.plain = cut(whole.parts[0].w.plain, quarter);
      part.parts[0].tree = ProductTree::kChain;
      parts[quarter] = result(part);
    }
    const std::vector<float> joined = result(whole);
    whole.parts[0].tree = ProductTree::kChain;
    EXPECT_NE(result(whole), joined);
    for (size_t i = 0; i < joined.size(); ++i)
      ASSERT_EQ(joined[i], (parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i])) << i;
  }
}
#endif

TEST_F(QuantLinearTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

TEST_F(QuantLinearTest, reads_its_inputs_by_its_product_rule_and_not_finer) {
  // With one large activation a row the aligned rule moves the others far beyond the bound; so do
  // weights that are rounded.
  Case c = edge_rows();
  c = select(c, std::vector<int64_t>{1});
  c.parts[0].is_f32 = true;
  Backend<QuantLinear> exact = backends_[0];
  exact.rules.product = ProductRule::kExact;
  EXPECT_EQ(kernel_keeps_contract(kSuite, {c}, {backends_[0]}), "");
  EXPECT_NE(kernel_keeps_contract(kSuite, {c}, {exact}), "");
}

TEST_F(QuantLinearTest, keeps_the_contract_at_served_shapes) {
  struct Served {
    MatrixFormat format;
    int64_t n_out, n_in;
  };
  const auto affine = [](int bits) {
    return MatrixFormat{QuantMatrix::Format::kAffine, bits, 64, DType::kBF16};
  };
  for (const Served& served : {Served{affine(4), 768, 8192}, Served{affine(8), 257, 3072},
                               Served{affine(4), 1024, 3072}}) {
    const Case whole = make(3, served.format, served.n_out, served.n_in, Fill::kNormal, 11);
    Memory memory;
    const QuantLinear op = arrange(whole, memory);
    backends_[1].run(op);
    EXPECT_EQ(memory.damage(), "");
    const Tensor& y = op.parts[0].y;
    for (int64_t i = 0; i < y.n_elements(); ++i) ASSERT_TRUE(std::isfinite(y.get(i)));
    // First, last and both sides of tile borders, and a stride that meets every lane.
    Judge judged;
    Case row{whole.name, 3, whole.x, {Part{}}};
    for (int64_t r = 0; r < served.n_out; r += r % 32 == 0 || r % 32 == 31 ? 1 : 10) {
      row.parts[0].w = whole.parts[0].w.rows(r, 1);
      Memory part_memory;
      const QuantLinear part = arrange(row, part_memory);
      for (int64_t t = 0; t < 3; ++t) part.parts[0].y.set(t, y.get(t * served.n_out + r));
      judge(row, part, backends_[1].rules, judged);
    }
    EXPECT_EQ(judged.report(), "");
  }
}

TEST(QuantLinearReference, agrees_with_a_second_writing_of_the_sums) {
  for (const Case& c : single_cases()) {
    for (const ProductRule rule :
         {ProductRule::kExact, ProductRule::kAligned16, ProductRule::kRounded16}) {
      Memory wide(Memory::Mode::kWide);
      Case unrounded = c;
      unrounded.parts[0].is_f32 = false;
      const QuantLinear op = arrange(unrounded, wide);
      quant_linear_reference(op, {true, rule});
      const std::vector<double> x = as_read(c.x, c.parts[0].w, {true, rule});
      for (int64_t i = 0; i < op.parts[0].y.n_elements(); ++i) {
        const int64_t n_out = c.parts[0].w.n_out, n_in = c.n_in();
        const auto row =
            std::span(x).subspan(static_cast<size_t>(i / n_out * n_in), static_cast<size_t>(n_in));
        const Bounded sum = product(c.parts[0].w, i % n_out, row, {true, rule});
        ASSERT_NEAR(op.parts[0].y.get(i), sum.exact, 1e-6 * sum.error) << c.name;
      }
    }
  }
}

TEST(QuantLinearCheck, an_input_of_another_width_is_a_bug) {
  Case c = make(2, {QuantMatrix::Format::kPlain, 0, 1, DType::kBF16}, 3, 8, Fill::kNormal, 1);
  Memory memory;
  QuantLinear op = arrange(c, memory);
  op.x.shape = {1, 16};
  EXPECT_DEATH(check(op), "n_in == n_in");
}

}  // namespace
}  // namespace roost
