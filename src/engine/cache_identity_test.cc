#include "engine/cache_identity.h"

#include <gtest/gtest.h>

#include <set>

#include "base/build_id.h"
#include "tests/model_run.h"

namespace roost {
namespace {

TEST(CacheIdentity, names_whatever_may_change_a_bit) {
  const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  ModelWeights other, without;
  other.checkpoint = weights->checkpoint;
  other.config.digest = weights->config.digest + "0";
  without.config.digest = weights->config.digest;
  DrafterWeights drafter;
  drafter.identity = {1, 2};
  const KvFormat kv = KvFormat::kActivation;
  const std::string all[] = {
      cache_identity(*weights, nullptr, kv, "cpu avx3, 2 threads", "b1"),
      cache_identity(*weights, nullptr, kv, "cpu avx3, 2 threads", "b2"),
      cache_identity(*weights, nullptr, kv, "cpu avx2, 2 threads", "b1"),
      cache_identity(*weights, nullptr, KvFormat::kInt8, "cpu avx3, 2 threads", "b1"),
      cache_identity(*weights, &drafter, kv, "cpu avx3, 2 threads", "b1"),
      cache_identity(other, nullptr, kv, "cpu avx3, 2 threads", "b1"),
      cache_identity(without, nullptr, kv, "cpu avx3, 2 threads", "b1"),
  };
  EXPECT_EQ(std::set<std::string>(std::begin(all), std::end(all)).size(), std::size(all));
  EXPECT_EQ(cache_identity(*weights, nullptr, kv, "cpu avx3, 16 threads", "b1"), all[0]);
}

TEST(BuildId, is_in_every_program) {
  EXPECT_GE(build_id().size(), 16u);
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace roost
