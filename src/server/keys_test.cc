#include "server/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "base/hash.h"

namespace roost {
namespace {

class TestClock final : public Clock {
 public:
  int64_t now_ns() const override { return now; }
  int64_t unix_seconds() const override { return now / 1'000'000'000; }
  int64_t now = 1'000'000'000'000;
};

class KeyRingTest : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::trunc) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_ = testing::TempDir() + "/roost_keys_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name();
  TestClock clock_;
};

std::string digest(const std::string& key) {
  return sha256_hex(std::as_bytes(std::span(key)));
}

TEST(KeyFile, lines_name_a_label_and_a_key) {
  const Result<std::vector<ApiKey>> keys = parse_key_file(
      "# people\nann:secret-of-ann\n\nbob:sha256:" + digest("secret-of-bob") + ":admin\r\n");
  ASSERT_TRUE(keys) << to_string(keys.error());
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].label, "ann");
  EXPECT_EQ((*keys)[0].sha256, digest("secret-of-ann"));
  EXPECT_FALSE((*keys)[0].is_admin);
  EXPECT_EQ((*keys)[1].sha256, digest("secret-of-bob"));
  EXPECT_TRUE((*keys)[1].is_admin);
}

TEST(KeyFile, a_damaged_line_is_refused_by_its_number_and_not_shown) {
  for (const char* text : {"", "# none\n", "no colon", ":nolabel", "a:short", "a:sha256:12",
                           "ok:long-enough-key\nb:sha256:XYZ"}) {
    const Result<std::vector<ApiKey>> keys = parse_key_file(text);
    ASSERT_FALSE(keys) << text;
    EXPECT_EQ(keys.error().refusal, Refusal::KeyFile);
    EXPECT_EQ(keys.error().detail.find("XYZ"), std::string::npos);
  }
  EXPECT_TRUE(parse_key_file("ok:long-enough-key\nbad").error().detail.starts_with("line 2: "));
}

TEST_F(KeyRingTest, callers_are_known_by_their_keys) {
  write("ann:secret-of-ann\nbob:secret-of-bob:admin\n");
  const Result<std::unique_ptr<KeyRing>> ring = KeyRing::create(path_, "secret-of-env", clock_);
  ASSERT_TRUE(ring) << to_string(ring.error());
  EXPECT_EQ((*ring)->find("secret-of-ann")->label, "ann");
  EXPECT_TRUE((*ring)->find("secret-of-bob")->is_admin);
  EXPECT_EQ((*ring)->find("secret-of-env")->label, "env");
  EXPECT_EQ((*ring)->find("").error().refusal, Refusal::AuthMissing);
  EXPECT_EQ((*ring)->find("secret-of-eve").error().refusal, Refusal::AuthInvalid);
  // What is stored is not what is sent.
  EXPECT_EQ((*ring)->find(digest("secret-of-ann")).error().refusal, Refusal::AuthInvalid);
}

TEST_F(KeyRingTest, a_file_that_others_can_read_stops_the_start) {
  write("ann:secret-of-ann\n", 0644);
  const Result<std::unique_ptr<KeyRing>> ring = KeyRing::create(path_, "", clock_);
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.error().refusal, Refusal::KeyFile);
  EXPECT_FALSE(KeyRing::create(path_ + "_missing", "", clock_));
  EXPECT_FALSE(KeyRing::create("", "short", clock_));
}

TEST_F(KeyRingTest, a_changed_file_is_read_again_and_a_damaged_one_lets_nobody_in) {
  write("ann:secret-of-ann\n");
  const Result<std::unique_ptr<KeyRing>> ring = KeyRing::create(path_, "", clock_);
  ASSERT_TRUE(ring);
  write("bob:secret-of-bob-is-longer\n");
  EXPECT_TRUE((*ring)->find("secret-of-ann"));  // within the second it is not looked at
  clock_.now += 1'000'000'000;
  EXPECT_EQ((*ring)->find("secret-of-ann").error().refusal, Refusal::AuthInvalid);
  EXPECT_TRUE((*ring)->find("secret-of-bob-is-longer"));
  write("damaged");
  clock_.now += 1'000'000'000;
  EXPECT_EQ((*ring)->find("secret-of-bob-is-longer").error().refusal, Refusal::AuthUnavailable);
  write("cat:secret-of-cat\n");
  (*ring)->reload();  // without waiting
  EXPECT_TRUE((*ring)->find("secret-of-cat"));
}

}  // namespace
}  // namespace roost
