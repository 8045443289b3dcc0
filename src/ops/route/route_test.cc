#include "ops/route/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;

struct Case {
  std::string name;
  int64_t n_rows, n_experts, n_chosen;
  bool normalize, has_shared;
  std::vector<double> logits, shared_logits;
};

Route arrange(const Case& c, Memory& memory) {
  Route op;
  op.logits = memory.input(DType::kF32, {c.n_rows, c.n_experts}, c.logits);
  op.ids = memory.output(DType::kI32, {c.n_rows, c.n_chosen});
  op.weights = memory.output(DType::kF32, {c.n_rows, c.n_chosen});
  op.normalize = c.normalize;
  if (!c.has_shared) return op;
  op.shared_logit = memory.input(DType::kF32, {c.n_rows, 1}, c.shared_logits);
  op.shared_gate = memory.output(DType::kF32, {c.n_rows});
  return op;
}

void judge(const Case& c, const Route& got, const ReferenceRules& rules, Judge& judge) {
  Memory memory;
  const Route exact = arrange(c, memory);
  route_reference(exact, rules);
  const auto near = [&](const char* name, const Tensor& have, const Tensor& want) {
    judge.near(name, have, want,
               [&](int64_t i) { return 0x1p-18 * std::abs(want.get(i)) + 0x1p-126; });
  };
  judge.equal("ids", got.ids, exact.ids);
  near("weights", got.weights, exact.weights);
  if (c.has_shared) near("shared_gate", got.shared_gate, exact.shared_gate);
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.n_rows = static_cast<int64_t>(rows.size());
  part.logits.clear();
  part.shared_logits.clear();
  for (const int64_t row : rows) {
    const auto from = c.logits.begin() + row * c.n_experts;
    part.logits.insert(part.logits.end(), from, from + c.n_experts);
    part.shared_logits.push_back(c.shared_logits[static_cast<size_t>(row)]);
  }
  return part;
}

const Suite<Route, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows; },
    .select = select,
    .row_outputs = [](const Route& op) { return std::vector{op.ids, op.weights, op.shared_gate}; },
};

Case make(int64_t n_rows, int64_t n_experts, int64_t n_chosen, Fill fill, uint64_t seed) {
  Case c{"", n_rows, n_experts, n_chosen, seed % 2 == 0, seed % 3 != 0, {}, {}};
  c.name = name_of(fill) + " " + std::to_string(n_rows) + "x" + std::to_string(n_experts) +
           " top " + std::to_string(n_chosen) + (c.normalize ? " normalized" : "");
  c.logits = values(fill, n_rows * n_experts, seed);
  c.shared_logits = values(fill, n_rows, seed + 100);
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    for (const auto& [n_rows, n_experts, n_chosen] : {std::array<int64_t, 3>{1, 1, 1},
                                                      {2, 7, 2},
                                                      {5, 15, 4},
                                                      {3, 16, 3},
                                                      {33, 17, 16},
                                                      {3, 31, 8},
                                                      {17, 256, 8},
                                                      {2, 512, 10}})
      all.push_back(make(n_rows, n_experts, n_chosen, fill, seed++));
  }
  // Logits of few values: ties everywhere, also across the border of the chosen ones.
  for (int64_t n_experts : {8, 64, 67}) {
    Case c = make(9, n_experts, 5, Fill::kNormal, seed += 2);
    for (double& logit : c.logits) logit = std::round(logit);
    c.name += " ties";
    all.push_back(c);
  }
  Case zeros = make(2, 24, 6, Fill::kNormal, seed);
  for (size_t i = 0; i < zeros.logits.size(); ++i) zeros.logits[i] = i % 3 == 0 ? -0.0 : 0.0;
  zeros.name += " zeros of both signs";
  all.push_back(zeros);
  Case broken = make(6, 40, 4, Fill::kNormal, seed);
  broken.logits[0] = std::numeric_limits<double>::infinity();
  broken.logits[2 * 40 - 1] = -std::numeric_limits<double>::infinity();
  broken.logits[3 * 40 + 17] = std::numeric_limits<double>::quiet_NaN();
  broken.name += " not finite";
  all.push_back(broken);
  return all;
}

std::vector<Fault<Route, Case>> faults() {
  return {
      {"last expert left out",
       [](Case& c) {
         for (int64_t t = 0; t < c.n_rows; ++t)
           c.logits[static_cast<size_t>((t + 1) * c.n_experts - 1)] = -1e30;
       }},
      {"normalization forgotten", [](Case& c) { c.normalize = !c.normalize; }},
      {"logits one expert late",
       [](Case& c) { std::rotate(c.logits.begin(), c.logits.begin() + 1, c.logits.end()); }},
      {"ties to the higher id",
       [](Case& c) {
         for (size_t i = 0; i < c.logits.size(); ++i)
           c.logits[i] += 1e-5 * static_cast<double>(static_cast<int64_t>(i) % c.n_experts);
       }},
      {"zero before minus zero",
       [](Case& c) {
         for (double& logit : c.logits) logit += std::signbit(logit) && logit == 0 ? -1e-30 : 0;
       }},
      {"logits rounded to bf16 steps",
       [](Case& c) {
         for (double& logit : c.logits) logit = std::round(logit * 8) / 8;
       }},
      {"gate without its sigmoid", nullptr,
       [](const Route& op) {
         if (op.shared_gate.exists()) op.shared_gate.set(0, op.shared_logit.get(0));
       }},
      {"ids in order of weight", nullptr,
       [](const Route& op) {
         for (int64_t s = 1; s < op.ids.dim(1); ++s) {
           if (op.weights.get(s) <= op.weights.get(s - 1)) continue;
           std::swap(op.ids.as<int32_t>()[s], op.ids.as<int32_t>()[s - 1]);
           std::swap(op.weights.as<float>()[s], op.weights.as<float>()[s - 1]);
         }
       }},
      {"a not finite row answered as if it were sound",
       [](Case& c) {
         for (double& logit : c.logits) logit = std::isfinite(logit) ? logit : 0;
       }},
      {"one row too many", nullptr,
       [](const Route& op) { op.weights.data[op.weights.n_bytes()] = std::byte{0}; }},
  };
}

class RouteTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<Route>> backends_{one_.backend<Route>(), two_.backend<Route>()};
};

TEST_F(RouteTest, keeps_the_contract) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
}

TEST_F(RouteTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(RouteTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

TEST(RouteCheck, more_chosen_than_there_are_experts_is_a_bug) {
  Memory memory;
  const Case c = make(2, 4, 5, Fill::kNormal, 1);
  EXPECT_DEATH(check(arrange(c, memory)), "n_chosen <= n_experts");
}

}  // namespace
}  // namespace roost
