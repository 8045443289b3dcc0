#include "ops/draft_select/draft_select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Case {
  std::string name;
  int64_t vocabulary, n_tokens, rank, k;  // rank 0: no codebooks
  std::vector<DraftWalk> walks;
  double multiplier = 1, softcap = 0;
  Values logits, hidden;
  MatrixValues predecessor, successor;

  int64_t n_rows() const {
    int64_t n = 0;
    for (const DraftWalk& walk : walks) n += walk.n_rows;
    return n;
  }
};

DraftSelect arrange(const Case& c, Memory& memory) {
  DraftSelect op{.logits = memory.input(DType::kF32, {c.n_rows(), c.vocabulary}, c.logits),
                 .walks = memory.list(c.walks),
                 .n_tokens = c.n_tokens,
                 .multiplier = c.multiplier,
                 .softcap = c.softcap,
                 .ids = memory.output(DType::kI32, {c.n_rows(), c.k}),
                 .scores = memory.output(DType::kF32, {c.n_rows(), c.k}),
                 .tokens = memory.output(DType::kI32, {c.n_rows()})};
  if (c.rank == 0) return op;
  op.hidden = memory.input(DType::kF32, {c.n_rows(), c.rank}, c.hidden);
  op.predecessor = &memory.list(std::vector{memory.matrix(c.predecessor)})[0];
  op.successor = &memory.list(std::vector{memory.matrix(c.successor)})[0];
  return op;
}

void judge(const Case& c, const DraftSelect& got, const ReferenceRules& rules, Judge& judge) {
  Memory memory;
  const DraftSelect exact = arrange(c, memory);
  draft_select_reference(exact, rules);
  judge.equal("ids", got.ids, exact.ids);
  judge.equal("tokens", got.tokens, exact.tokens);
  judge.near("scores", got.scores, exact.scores,
             [&](int64_t i) { return 0x1p-22 * std::abs(exact.scores.get(i)) + 1e-30; });
}

const Suite<DraftSelect, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                      .arrange = arrange,
                                      .judge = judge,
                                      .n_rows = nullptr,
                                      .select = nullptr,
                                      .row_outputs = nullptr};

struct Size {
  int64_t vocabulary, n_tokens, rank, k;
  std::vector<int32_t> rows;  // of each walk
};

Case make(const Size& s, const MatrixFormat& format, const SampleParams& params, Fill fill,
          uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(s.k) + " of " + std::to_string(s.vocabulary) +
                 ", rank " + std::to_string(s.rank) + ", temperature " +
                 std::to_string(params.temperature),
         .vocabulary = s.vocabulary,
         .n_tokens = s.n_tokens,
         .rank = s.rank,
         .k = s.k};
  int32_t first_row = 0;
  for (const int32_t n : s.rows) {
    DraftWalk walk{.first_row = first_row, .n_rows = n, .anchor = 0, .params = params};
    walk.anchor = static_cast<int32_t>((seed + static_cast<uint64_t>(first_row)) %
                                       static_cast<uint64_t>(s.vocabulary));
    walk.params.position = 100 + 31 * first_row;
    c.walks.push_back(walk);
    first_row += n;
  }
  c.logits = values(fill, c.n_rows() * s.vocabulary, seed);
  if (s.rank == 0) return c;
  c.hidden = values(Fill::kNormal, c.n_rows() * s.rank, seed + 1);
  const double size = fill == Fill::kHuge ? 100 : fill == Fill::kTiny ? 0.01 : 1;
  c.predecessor = matrix_values(format, s.vocabulary, s.rank, Fill::kNormal, seed + 2, size);
  c.successor = matrix_values(format, s.vocabulary, s.rank, Fill::kNormal, seed + 3, 0.5 * size);
  return c;
}

const MatrixFormat kPlain{QuantMatrix::Format::kPlain, 0, 1, DType::kBF16};
const MatrixFormat kQ4{QuantMatrix::Format::kAffine, 4, 32, DType::kBF16};

std::vector<Case> cases() {
  const SampleParams draws[] = {
      {},
      {.temperature = 1, .seed = 5},
      {.temperature = 0.7, .top_k = 3, .seed = 6},
      {.temperature = 1.3, .top_p = 0.8, .seed = 7},
      {.temperature = 1, .min_p = 0.2, .seed = 8},
      {.temperature = 2, .top_k = 9, .top_p = 0.9, .min_p = 0.05, .seed = 9}};
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const SampleParams& params : draws) {
    for (const Fill fill : {Fill::kNormal, Fill::kTiny, Fill::kHuge, Fill::kCoordinates}) {
      all.push_back(make({1, 1, 0, 1, {1}}, kPlain, params, fill, seed += 7));
      all.push_back(make({61, 50, 3, 16, {3, 1}}, kPlain, params, fill, seed += 7));
      all.push_back(make({40, 40, 32, 40, {5}}, kQ4, params, fill, seed += 7));
      all.push_back(make({700, 699, 32, 16, {7, 15}}, kPlain, params, fill, seed += 7));
    }
  }
  Case capped = make({300, 300, 4, 8, {15}}, kPlain, draws[1], Fill::kNormal, seed += 7);
  capped.multiplier = 0.196;
  capped.softcap = 2;
  capped.name += " capped";
  all.push_back(capped);
  for (const SampleParams& params : {draws[0], draws[1]}) {
    Case ties = make({128, 128, 0, 16, {9}}, kPlain, params, Fill::kNormal, seed += 7);
    for (double& z : ties.logits) z = std::round(z);
    ties.name += " ties";
    all.push_back(ties);
  }
  Case broken = make({64, 60, 4, 16, {3, 3, 3, 3}}, kPlain, draws[0], Fill::kNormal, seed += 7);
  broken.logits[64 + 5] = std::numeric_limits<double>::quiet_NaN();
  broken.logits[4 * 64 + 59] = std::numeric_limits<double>::infinity();
  broken.logits[6 * 64 + 61] = std::numeric_limits<double>::quiet_NaN();  // padding
  for (int i = 0; i < 50; ++i)
    broken.logits[static_cast<size_t>(11 * 64 + i)] = -std::numeric_limits<double>::infinity();
  broken.name += " not finite";
  all.push_back(broken);
  // Finite logits, and scores that are not: inf, and inf - inf.
  for (const SampleParams& params : {draws[0], draws[1]}) {
    Case scores = make({64, 60, 4, 16, {3, 3}}, kPlain, params, Fill::kNormal, seed += 7);
    scores.hidden[1 * 4 + 2] = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < 4; ++r)
      scores.hidden[4 * 4 + r] = std::numeric_limits<double>::infinity();
    scores.name += " scores not finite";
    all.push_back(scores);
  }
  return all;
}

std::vector<Fault<DraftSelect, Case>> faults() {
  using Op = DraftSelect;
  return {
      {"codebooks swapped", [](Case& c) { std::swap(c.predecessor, c.successor); }},
      {"anchor left out",
       [](Case& c) {
         c.walks[0].anchor = (c.walks[0].anchor + 1) % static_cast<int32_t>(c.vocabulary);
       }},
      {"hidden of the next row",
       [](Case& c) { std::rotate(c.hidden.begin(), c.hidden.begin() + c.rank, c.hidden.end()); }},
      {"no pair scores", [](Case& c) { std::fill(c.hidden.begin(), c.hidden.end(), 0); }},
      {"padding drafted", [](Case& c) { c.n_tokens = c.vocabulary; }},
      {"one position late",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.position += 1;
       }},
      {"another seed",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.seed += 1;
       }},
      {"temperature left out",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.temperature = walk.params.temperature > 0;
       }},
      {"top_k left out",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.top_k = 0;
       }},
      {"top_p left out",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.top_p = 1;
       }},
      {"min_p left out",
       [](Case& c) {
         for (DraftWalk& walk : c.walks) walk.params.min_p = 0;
       }},
      {"multiplier left out", [](Case& c) { c.multiplier = 1; }},
      {"cap left out", [](Case& c) { c.softcap = 0; }},
      {"ties to the higher id",
       [](Case& c) {
         for (size_t i = 0; i < c.logits.size(); ++i)
           c.logits[i] += 1e-5 * static_cast<double>(static_cast<int64_t>(i) % c.vocabulary);
       }},
      {"a row that is not finite drafted as if it were",
       [](Case& c) {
         for (double& z : c.logits) z = std::isfinite(z) ? z : 0;
       }},
      {"one row too many", nullptr,
       [](const Op& op) { op.tokens.data[op.tokens.n_bytes()] = std::byte{0}; }},
  };
}

class DraftSelectTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<DraftSelect>> backends_{one_.backend<DraftSelect>(),
                                              two_.backend<DraftSelect>()};
};

TEST_F(DraftSelectTest, keeps_the_contract) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(DraftSelectTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

// Without codebooks and with all ids as candidates, a drafter whose logits are the target's draws
// what the target draws.
TEST_F(DraftSelectTest, draws_what_sample_draws_from_the_same_logits) {
  const SampleParams draws[] = {{},
                                {.temperature = 1, .seed = 3},
                                {.temperature = 0.8, .top_k = 5, .seed = 4},
                                {.temperature = 1.5, .top_p = 0.7, .min_p = 0.1, .seed = 5}};
  for (const SampleParams& params : draws) {
    const Case c = make({50, 50, 0, 50, {15, 15}}, kPlain, params, Fill::kNormal, 40);
    Memory memory;
    const DraftSelect op = arrange(c, memory);
    backends_[0].run(op);
    std::vector<SampleParams> each;
    for (const DraftWalk& walk : c.walks) {
      for (int32_t j = 0; j < walk.n_rows; ++j) {
        each.push_back(walk.params);
        each.back().position += j;
      }
    }
    Memory other;
    const Sample sample{.logits = op.logits,
                        .params = each,
                        .n_tokens = c.n_tokens,
                        .tokens = other.output(DType::kI32, {c.n_rows()})};
    sample_reference(sample, {});
    for (int64_t i = 0; i < c.n_rows(); ++i) EXPECT_EQ(op.tokens.get(i), sample.tokens.get(i)) << i;
  }
}

TEST(DraftSelectCheck, more_candidates_than_tokens_is_a_bug) {
  Memory memory;
  const Case c = make({20, 8, 0, 9, {2}}, kPlain, {}, Fill::kNormal, 1);
  EXPECT_DEATH(check(arrange(c, memory)), "k <= op.n_tokens");
}

}  // namespace
}  // namespace roost
