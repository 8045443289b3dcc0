// Penalties, biases and probabilities against plain float64 formulas.
#include "engine/logit_adjust.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace roost {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

std::vector<float> row_of(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& z : out) z = normal(random);
  return out;
}

TEST(LogitAdjust, penalties_follow_their_formulas) {
  LogitAdjust adjust;
  adjust.presence = 0.5;
  adjust.frequency = -0.25;
  adjust.repetition = 1.3;
  adjust.bias = {{3, 2.5}, {7, kNeverBias}, {9, -1}};
  const std::vector<int32_t> prompt = {1, 2, 2, 9}, reply = {2, 4, 4, 4, 9};
  PenaltyHistory history(adjust, prompt, 20, 100);
  for (const int32_t token : reply) history.keep(token);
  const std::vector<float> raw = row_of(20, 1);
  std::vector<float> row = raw;
  adjust_logits(adjust, history, std::vector<int32_t>{11}, row);

  std::map<int32_t, int> counts;
  for (const int32_t token : reply) ++counts[token];
  std::set<int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(reply.begin(), reply.end());
  for (int32_t id = 0; id < 20; ++id) {
    double z = raw[static_cast<size_t>(id)];
    for (const auto& [token, bias] : adjust.bias)
      if (token == id) z = static_cast<float>(z + bias);
    if (seen.contains(id)) z = z > 0 ? z / 1.3 : z * 1.3;
    if (counts[id] > 0) z -= -0.25 * counts[id] + 0.5;
    if (id == 7 || id == 11) z = kMasked;
    EXPECT_EQ(row[static_cast<size_t>(id)], static_cast<float>(z)) << id;
  }
}

TEST(LogitAdjust, presence_and_frequency_do_not_see_the_prompt) {
  LogitAdjust adjust;
  adjust.presence = 2;
  PenaltyHistory history(adjust, std::vector<int32_t>{1, 2, 3}, 8, 100);
  const std::vector<float> raw = row_of(8, 2);
  std::vector<float> row = raw;
  adjust_logits(adjust, history, {}, row);
  EXPECT_EQ(row, raw);
  history.keep(5);
  adjust_logits(adjust, history, {}, row);
  EXPECT_EQ(row[5], static_cast<float>(double{raw[5]} - 2));
}

TEST(LogitAdjust, off_means_off) {
  EXPECT_TRUE(LogitAdjust().is_off());
  LogitAdjust least;
  least.min_tokens = 1;
  EXPECT_FALSE(least.is_off());
  PenaltyHistory none(LogitAdjust(), std::vector<int32_t>{1}, 8, 100);
  none.keep(3);
  EXPECT_TRUE(none.seen().empty());
}

TEST(TakeTop, gives_the_logarithm_of_the_softmax_in_order) {
  std::vector<float> row = row_of(500, 3);
  row[10] = row[20] = row[30] = 50;  // ties
  std::vector<TokenLogprob> top;
  top.reserve(5);
  double total = 0;
  take_top(row, 5, top, &total);
  double sum = 0;
  for (const float z : row) sum += std::exp(double{z} - 50);
  EXPECT_NEAR(total, 50 + std::log(sum), 1e-12);
  ASSERT_EQ(top.size(), 5u);
  EXPECT_EQ(top[0].token, 10);
  EXPECT_EQ(top[1].token, 20);
  EXPECT_EQ(top[2].token, 30);
  std::vector<std::pair<float, int32_t>> sorted;
  for (int32_t i = 0; i < 500; ++i) sorted.emplace_back(-row[static_cast<size_t>(i)], i);
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(top[i].token, sorted[i].second);
    EXPECT_FLOAT_EQ(top[i].logprob, static_cast<float>(double{-sorted[i].first} - total));
  }
  take_top(row, 0, top, &total);
  EXPECT_TRUE(top.empty());
}

}  // namespace
}  // namespace roost
