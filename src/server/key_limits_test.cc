#include "server/key_limits.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::map<std::string, KeyLimits> limits_of(const std::vector<std::string>& lines) {
  Result<std::map<std::string, KeyLimits>> parsed = parse_key_limits(lines);
  EXPECT_TRUE(parsed);
  return parsed ? std::move(parsed).value() : std::map<std::string, KeyLimits>();
}

std::string header(const HttpHeaders& headers, const std::string& name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return "";
}

TEST(KeyLimits, lines_are_for_every_key_or_for_one) {
  const auto limits = limits_of({"concurrent=4,requests=60,tokens=1000", "bob:tokens=5"});
  EXPECT_EQ(limits.at("").n_at_once, 4);
  EXPECT_EQ(limits.at("").requests_per_minute, 60);
  EXPECT_EQ(limits.at("").tokens_per_minute, 1000);
  EXPECT_EQ(limits.at("bob").tokens_per_minute, 5);
  EXPECT_EQ(limits.at("bob").n_at_once, 0);
  for (const char* bad : {"requests", "requests=", "requests=0", "requests=-1", "requests=1.5",
                          "speed=1", "requests=99999999999999999999", "bob:requests=x"}) {
    const auto parsed = parse_key_limits({bad});
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().refusal, Refusal::FlagValue) << bad;
  }
  EXPECT_FALSE(parse_key_limits({"tokens=1", "tokens=2"}));
}

TEST(KeyLimits, replies_at_once_are_counted_until_their_end) {
  KeyLimiter limiter(limits_of({"concurrent=2"}));
  EXPECT_FALSE(limiter.begin("a", 0));
  EXPECT_FALSE(limiter.begin("a", 0));
  EXPECT_TRUE(limiter.begin("a", 0));
  EXPECT_FALSE(limiter.begin("b", 0)) << "each key has its own";
  limiter.end("a", 10);
  EXPECT_FALSE(limiter.begin("a", 0));
}

TEST(KeyLimits, requests_come_back_evenly_over_a_minute) {
  KeyLimiter limiter(limits_of({"requests=6"}));
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(limiter.begin("a", 0)) << i;
    limiter.end("a", 0);
  }
  const auto refused = limiter.begin("a", 1 * kSecond);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 9);
  EXPECT_FALSE(limiter.begin("a", 10 * kSecond));
  limiter.end("a", 0);
  EXPECT_TRUE(limiter.begin("a", 10 * kSecond));
  const HttpHeaders headers = limiter.headers("a", 30 * kSecond);
  EXPECT_EQ(header(headers, "x-ratelimit-limit-requests"), "6");
  EXPECT_EQ(header(headers, "x-ratelimit-remaining-requests"), "2");
  EXPECT_EQ(header(headers, "x-ratelimit-reset-requests"), "40s");
  EXPECT_EQ(header(headers, "x-ratelimit-limit-tokens"), "");
}

TEST(KeyLimits, tokens_are_paid_when_a_reply_is_over) {
  KeyLimiter limiter(limits_of({"tokens=600"}));
  EXPECT_FALSE(limiter.begin("a", 0));
  limiter.end("a", 700);
  const auto refused = limiter.begin("a", 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 11) << "101 tokens at 10 a second";
  EXPECT_EQ(header(limiter.headers("a", 0), "x-ratelimit-remaining-tokens"), "0");
  EXPECT_FALSE(limiter.begin("a", 11 * kSecond));
}

TEST(KeyLimits, without_limits_nothing_is_counted_or_told) {
  KeyLimiter limiter(limits_of({"bob:concurrent=1"}));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(limiter.begin("a", 0));
  EXPECT_TRUE(limiter.headers("a", 0).empty());
  EXPECT_FALSE(limiter.begin("bob", 0));
  EXPECT_TRUE(limiter.begin("bob", 0));
}

}  // namespace
}  // namespace roost
