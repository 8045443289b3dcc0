#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "base/random.h"

namespace roost::json {
namespace {

Value number(std::string spelling) {
  return Value::spelled(std::move(spelling));
}

TEST(JsonValue, integral_numbers_are_integers_however_spelled) {
  struct Case {
    std::string_view spelling;
    std::optional<int64_t> value;
  };
  const Case cases[] = {
      {"0", 0},
      {"-0", 0},
      {"-0.0", 0},
      {"0e99999999999999999999", 0},
      {"5.0", 5},
      {"1e3", 1000},
      {"-1E+3", -1000},
      {"1500e-2", 15},
      {"1.5e1", 15},
      {"12.50e1", 125},
      {"1.5", std::nullopt},
      {"1e-1", std::nullopt},
      {"9223372036854775807", INT64_MAX},
      {"9223372036854775808", std::nullopt},
      {"-9223372036854775808", INT64_MIN},
      {"-9223372036854775809", std::nullopt},
      {"9.223372036854775807e18", INT64_MAX},
      {"1e18", 1'000'000'000'000'000'000},
      {"1e19", std::nullopt},
      {"1e99999999999999999999", std::nullopt},
      {"1e-99999999999999999999", std::nullopt},
      {"100000000000000000000000000000e-28", 10},
  };
  for (const Case& c : cases)
    EXPECT_EQ(number(std::string(c.spelling)).as_int64(), c.value) << c.spelling;
}

TEST(JsonValue, unsigned_integers_reach_the_full_range) {
  EXPECT_EQ(number("18446744073709551615").as_uint64(), UINT64_MAX);
  EXPECT_EQ(number("18446744073709551616").as_uint64(), std::nullopt);
  EXPECT_EQ(number("99999999999999999999").as_uint64(), std::nullopt);
  EXPECT_EQ(number("1e20").as_uint64(), std::nullopt);
  EXPECT_EQ(number("-1").as_uint64(), std::nullopt);
  EXPECT_EQ(number("-0").as_uint64(), 0u);
  EXPECT_EQ(Value::unsigned_integer(UINT64_MAX).as_uint64(), UINT64_MAX);
  EXPECT_EQ(Value::integer(INT64_MIN).as_int64(), INT64_MIN);
}

TEST(JsonValue, doubles_are_the_nearest_and_integers_are_told_by_spelling) {
  EXPECT_EQ(number("0.1").as_double(), 0.1);
  EXPECT_EQ(number("1e400").as_double(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(number("-1e400").as_double(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(number("12345678901234567890").as_double(), 12345678901234567890.0);
  EXPECT_TRUE(std::signbit(number("-0").as_double()));
  EXPECT_TRUE(number("12").is_spelled_as_integer());
  EXPECT_FALSE(number("12.0").is_spelled_as_integer());
  EXPECT_FALSE(number("1e5").is_spelled_as_integer());
  EXPECT_FALSE(number("1E5").is_spelled_as_integer());
}

TEST(JsonValue, doubles_are_spelled_as_python_does) {
  struct Case {
    double value;
    std::string_view spelling;
  };
  const Case cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {-1.5, "-1.5"},
      {100.0, "100.0"},
      {0.1, "0.1"},
      {0.0001, "0.0001"},
      {0.00001, "1e-05"},
      {0.000123, "0.000123"},
      {1.25e-7, "1.25e-07"},
      {123456789.125, "123456789.125"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1234567890123456.0, "1234567890123456.0"},
      {12345678901234567.0, "1.2345678901234568e+16"},
      {1e22, "1e+22"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {5e-324, "5e-324"},
      {0.30000000000000004, "0.30000000000000004"},
  };
  for (const Case& c : cases) EXPECT_EQ(python_repr(c.value), c.spelling);
  EXPECT_EQ(Value::real(2).number_text(), "2.0");
}

TEST(JsonValue, spelled_doubles_read_back_the_same) {
  SeededRandom random(5);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t bits = random.next_u64();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(number(python_repr(value)).as_double(), value) << python_repr(value);
  }
}

TEST(JsonValue, writes_as_python_does_or_compactly) {
  const Value value =
      *parse(R"({"a":[1,2.50,{"é":"ü\n\u0001\"\\/\u007f"}],"b":{},"c":[],"d":null,"e":true})");
  EXPECT_EQ(write(value),
            "{\"a\":[1,2.50,{\"é\":\"ü\\n\\u0001\\\"\\\\/"
            "\x7F\"}],\"b\":{},\"c\":[],\"d\":null,\"e\":true}");
  EXPECT_EQ(write(value, Style::kPython),
            "{\"a\": [1, 2.50, {\"é\": \"ü\\n\\u0001\\\"\\\\/\x7F\"}], \"b\": {}, \"c\": [], "
            "\"d\": null, \"e\": true}");
  std::string out = "x";
  write_string("\b\f\r\t\x1f", out);
  EXPECT_EQ(out, "x\"\\b\\f\\r\\t\\u001f\"");
}

TEST(JsonValue, equality_sees_every_part) {
  const Value value = *parse(R"({"a":[1,true,"x",null],"b":2})");
  EXPECT_TRUE(value == *parse(R"( {"a": [1,true,"x",null], "b": 2} )"));
  for (const std::string_view other :
       {R"({"a":[1,true,"x",null],"b":2.0})", R"({"a":[1,false,"x",null],"b":2})",
        R"({"a":[1,true,"y",null],"b":2})", R"({"b":2,"a":[1,true,"x",null]})",
        R"({"a":[1,true,"x"],"b":2})", R"({"a":[1,true,"x",null]})",
        R"({"a":["1",true,"x",null],"b":2})", "[]", "null"})
    EXPECT_FALSE(value == *parse(other)) << other;
}

TEST(JsonValue, the_last_of_repeated_keys_is_found_and_replaced) {
  Value value = *parse(R"({"a":1,"b":2,"a":3})");
  EXPECT_EQ(value.find("a")->as_int64(), 3);
  value.set("a", Value::integer(4));
  value.set("c", Value::integer(5));
  EXPECT_EQ(write(value), R"({"a":1,"b":2,"a":4,"c":5})");
  EXPECT_EQ(value.find("d"), nullptr);
  EXPECT_EQ(Value().find("a"), nullptr);
  EXPECT_EQ(Value::object().find("a"), nullptr);
}

// The same operations on an object that a walk finds and on one that needs an index.
TEST(JsonValue, large_objects_behave_as_small_ones) {
  SeededRandom random(7);
  for (const int n_keys : {5, 20, 30, 1000}) {
    Value value = Value::object();
    std::vector<std::pair<std::string, int64_t>> model;
    for (int i = 0; i < 3000; ++i) {
      const std::string key =
          "k" + std::to_string(random.next_u64() % static_cast<uint64_t>(n_keys));
      const uint64_t action = random.next_u64() % 8;
      const auto last =
          std::find_if(model.rbegin(), model.rend(), [&](const auto& m) { return m.first == key; });
      if (action < 4) {
        value.set(key, Value::integer(i));
        if (last != model.rend())
          last->second = i;
        else
          model.emplace_back(key, i);
      } else if (action == 4 && model.size() < 2000) {
        value.members().emplace_back(key, Value::integer(i));  // a repetition
        model.emplace_back(key, i);
      } else {
        const Value* found = value.find(key);
        ASSERT_EQ(found != nullptr, last != model.rend());
        if (found != nullptr) {
          ASSERT_EQ(found->as_int64(), last->second);
        }
      }
    }
    ASSERT_EQ(value.members().size(), model.size());
    for (size_t i = 0; i < model.size(); ++i) {
      EXPECT_EQ(value.members()[i].first, model[i].first);
      EXPECT_EQ(value.members()[i].second.as_int64(), model[i].second);
    }
  }
}

TEST(JsonValue, finding_and_setting_do_not_walk_a_large_object) {
  // 300,000 keys: a walk for each would take minutes.
  Value value = Value::object();
  for (int i = 0; i < 300'000; ++i) value.set("key" + std::to_string(i), Value::integer(i));
  for (int i = 0; i < 300'000; ++i) ASSERT_EQ(value.find("key" + std::to_string(i))->as_int64(), i);
  const Value copy = value;
  EXPECT_EQ(copy.find("key299999")->as_int64(), 299'999);
}

TEST(JsonValue, several_threads_may_find_at_once) {
  Value value = Value::object();
  for (int i = 0; i < 1000; ++i)
    value.members().emplace_back("key" + std::to_string(i), Value::integer(i));
  std::vector<std::thread> threads;
  std::atomic<int> n_found{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&value, &n_found] {
      for (int i = 0; i < 1000; ++i)
        n_found += std::as_const(value).find("key" + std::to_string(i))->as_int64() == i;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_found, 4000);
}

TEST(JsonValue, copies_are_deep_and_moves_leave_no_trace) {
  Value value = *parse(R"({"a":[1,[2]]})");
  Value copy = value;
  copy.members()[0].second.items()[1].push(Value::integer(3));
  EXPECT_EQ(write(value), R"({"a":[1,[2]]})");
  EXPECT_EQ(write(copy), R"({"a":[1,[2,3]]})");
  copy = copy.members()[0].second;  // from a part of itself
  EXPECT_EQ(write(copy), "[1,[2,3]]");
  copy = std::move(copy.items()[1]);
  EXPECT_EQ(write(copy), "[2,3]");
  value.set("b", value);
  EXPECT_EQ(write(value), R"({"a":[1,[2]],"b":{"a":[1,[2]]}})");
}

TEST(JsonValue, the_first_object_with_a_repeated_key_is_named) {
  struct Case {
    std::string_view text;
    std::optional<std::string> pointer;
    std::string_view key;
  };
  const Case cases[] = {
      {R"({"a":1,"b":1})", std::nullopt, ""},
      {R"({"a":1,"b":2,"a":1})", "", "a"},
      {R"([1,{"x":{"a":[{"k":1,"":2,"":3}]}}])", "/1/x/a/0", ""},
      {R"({"a/b":{"m~n":{"k":1,"k":1}}})", "/a~1b/m~0n", "k"},
      {R"([[],[{"a":1},{"b":1,"b":1}],{"c":1,"c":1}])", "/1/1", "b"},
      {R"({"x":{"q":1,"q":1},"y":1,"y":2})", "", "y"},
      {"3", std::nullopt, ""},
      {"[[[]]]", std::nullopt, ""},
  };
  for (const Case& c : cases) {
    std::string key;
    EXPECT_EQ(find_duplicate_key(*parse(c.text), &key), c.pointer) << c.text;
    EXPECT_EQ(key, c.key) << c.text;
    EXPECT_EQ(find_duplicate_key(*parse(c.text)).has_value(), c.pointer.has_value());
  }
}

TEST(JsonValueDeathTest, reading_another_type_is_a_bug) {
  EXPECT_DEATH((void)Value().as_string(), "bug at");
  EXPECT_DEATH((void)Value::string("1").number_text(), "bug at");
  EXPECT_DEATH((void)Value::array().members(), "bug at");
  EXPECT_DEATH((void)Value::real(std::nan("")), "bug at");
}

}  // namespace
}  // namespace roost::json
