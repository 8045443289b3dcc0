// Pages of 8-bit codes are other arithmetic, and every law holds within it. How much they agree
// with bf16 is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "tests/model_run.h"

#ifndef ROOST_MODEL_CUDA  // a card has no kernels for codes

namespace roost {
namespace {

using testing::Feed;
using testing::ModelRun;
using testing::run_in_chunks;
using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 640, kRowsMax = 1024;

const ModelWeights& fledgling() {
  static const auto kWeights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return *kWeights;
}

class KvInt8Laws : public ::testing::Test {
 protected:
  ModelRun run(int n_sequences, uint64_t page_seed, KvFormat kv = KvFormat::kInt8) {
    return ModelRun(fledgling(), *ops_, n_sequences, kContext, kRowsMax, page_seed, kv);
  }
  static Tokens random_tokens(size_t n, uint64_t seed) {
    std::mt19937_64 random(seed);
    Tokens tokens(n);
    for (int32_t& t : tokens)
      t = static_cast<int32_t>(random() % static_cast<uint64_t>(fledgling().config.vocabulary));
    return tokens;
  }

  ThreadPool pool_{1};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(pool_, Qwen35::ops_limits(fledgling().config, kRowsMax));
};

TEST_F(KvInt8Laws, a_prompt_in_any_chunks_equals_row_by_row) {
  const Tokens tokens = random_tokens(200, 11);
  ModelRun want = run(1, 1);
  run_in_chunks(want, 0, tokens, 1);
  for (const size_t chunk : {size_t{13}, size_t{1024}}) {
    ModelRun have = run(1, 100 + chunk);
    run_in_chunks(have, 0, tokens, chunk);
    EXPECT_TRUE(have.logits(0) == want.logits(0)) << chunk;
    EXPECT_TRUE(have.memory_of(0) == want.memory_of(0)) << chunk;
  }
}

TEST_F(KvInt8Laws, sequences_together_equal_each_alone) {
  std::mt19937_64 random(5);
  std::vector<Tokens> tokens;
  ModelRun together = run(5, 9);
  for (size_t s = 0; s < 5; ++s) tokens.push_back(random_tokens(40 + 21 * s, s));
  std::vector<size_t> at(5, 0);
  for (bool is_open = true; is_open;) {
    std::vector<Feed> feeds;
    for (size_t s = 0; s < 5; ++s) {
      const size_t n = std::min(tokens[s].size() - at[s], random() % 40);
      if (n == 0) continue;
      const auto from = tokens[s].begin() + static_cast<int64_t>(at[s]);
      feeds.push_back({static_cast<int>(s), {from, from + static_cast<int64_t>(n)}});
      at[s] += n;
    }
    if (!feeds.empty()) together.step(feeds);
    is_open = false;
    for (size_t s = 0; s < 5; ++s) is_open |= at[s] < tokens[s].size();
  }
  for (size_t s = 0; s < 5; ++s) {
    ModelRun alone = run(1, 20 + s);
    run_in_chunks(alone, 0, tokens[s], 1);
    EXPECT_TRUE(together.logits(static_cast<int>(s)) == alone.logits(0)) << s;
    EXPECT_TRUE(together.memory_of(static_cast<int>(s)) == alone.memory_of(0)) << s;
  }
}

// Texts of the model itself, teacher-forced: how often the likeliest token is the same.
TEST_F(KvInt8Laws, prefers_the_tokens_of_bf16) {
  const Result<std::string> text =
      read_file(ROOST_SOURCE_DIR "/tests/golden/golden.json", limits::kTokenizerBytesMax);
  ASSERT_TRUE(text);
  const Result<json::Value> golden = json::parse(*text);
  ASSERT_TRUE(golden);
  const auto ids_of = [](const json::Value& list, Tokens& to) {
    for (const json::Value& id : list.items())
      to.push_back(static_cast<int32_t>(id.as_int64().value()));
  };
  int64_t n_same = 0, n_all = 0;
  double lead_max = 0;
  const auto vocabulary = fledgling().config.vocabulary;
  for (const json::Value& one : golden->find("continuations")->items()) {
    Tokens tokens;
    ids_of(*one.find("prompt_ids"), tokens);
    ids_of(*one.find("ids"), tokens);
    ModelRun codes = run(1, 1), exact = run(1, 1, KvFormat::kActivation);
    run_in_chunks(codes, 0, tokens, 512);
    run_in_chunks(exact, 0, tokens, 512);
    for (size_t t = 0; t < tokens.size(); ++t, ++n_all) {
      const auto row = [&](const ModelRun& from) {
        return from.logits(0).begin() + static_cast<int64_t>(t) * vocabulary;
      };
      const auto best = std::max_element(row(exact), row(exact) + vocabulary);
      const auto mine = std::max_element(row(codes), row(codes) + vocabulary) - row(codes);
      if (mine == best - row(exact)) {
        ++n_same;
      } else {
        lead_max = std::max(lead_max, static_cast<double>(*best - row(exact)[mine]));
      }
    }
  }
  std::printf("  %lld of %lld likeliest tokens are those of bf16; largest lead of another %.3f\n",
              static_cast<long long>(n_same), static_cast<long long>(n_all), lead_max);
  EXPECT_GT(n_all, 500);
  EXPECT_GE(static_cast<double>(n_same), 0.98 * static_cast<double>(n_all));
  EXPECT_LT(lead_max, 0.5);
}

}  // namespace
}  // namespace roost

#endif
