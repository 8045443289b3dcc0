// Safetensors files, whole and damaged in every way that a header can be.
#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "base/limits.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;
using test::FileTensors;
using test::safetensors_bytes;
using test::with_length;

Result<std::vector<TensorEntry>> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "a.safetensors");
}

const FileTensors kTensors = {{"one", {"BF16", {2, 3}, "abcdefghijkl"}},
                              {"two", {"U8", {3}, "xyz"}}};

TEST(Safetensors, reads_tensors_behind_unpadded_headers) {
  bool was_odd = false, was_even = false;
  for (size_t blanks = 0; blanks < 9; ++blanks) {
    const std::string bytes = safetensors_bytes(kTensors, blanks);
    ((bytes.size() - 15) % 2 == 0 ? was_even : was_odd) = true;
    const auto tensors = parse(bytes);
    ASSERT_TRUE(tensors) << to_string(tensors.error());
    ASSERT_EQ(tensors->size(), 2u);
    EXPECT_EQ((*tensors)[0].name, "one");
    EXPECT_EQ((*tensors)[0].dtype, DType::kBF16);
    EXPECT_EQ((*tensors)[0].shape, (Shape{2, 3}));
    EXPECT_EQ(static_cast<char>((*tensors)[1].bytes[2]), 'z');
  }
  EXPECT_TRUE(was_odd && was_even);
}

TEST(Safetensors, reads_every_known_type) {
  const std::pair<const char*, DType> types[] = {
      {"BF16", DType::kBF16}, {"F16", DType::kF16}, {"F32", DType::kF32}, {"F64", DType::kF64},
      {"I8", DType::kI8},     {"U8", DType::kU8},   {"I16", DType::kI16}, {"I32", DType::kI32},
      {"U32", DType::kU32},   {"I64", DType::kI64}};
  for (const auto& [name, dtype] : types) {
    const auto tensors =
        parse(safetensors_bytes({{"t", {name, {2}, std::string(2 * size_of(dtype), 'x')}}}));
    ASSERT_TRUE(tensors) << to_string(tensors.error());
    EXPECT_EQ((*tensors)[0].dtype, dtype);
  }
}

TEST(Safetensors, empty_tensors_and_empty_files_are_legal) {
  EXPECT_TRUE(parse(with_length("{}")));
  EXPECT_TRUE(parse(with_length("{}  \n")));
  const auto tensors =
      parse(safetensors_bytes({{"a", {"F32", {0, 4}, ""}}, {"b", {"U8", {}, "x"}}}));
  ASSERT_TRUE(tensors) << to_string(tensors.error());
  EXPECT_EQ((*tensors)[0].bytes.size(), 0u);
  EXPECT_EQ((*tensors)[1].shape.rank(), 0);
}

TEST(Safetensors, names_may_hold_escapes_and_other_characters) {
  const auto tensors = parse(
      with_length(R"({"a\"b\u00e9ü": {"data_offsets": [0, 1], "dtype": "U8", "shape": [1]}})") +
      "x");
  ASSERT_TRUE(tensors) << to_string(tensors.error());
  EXPECT_EQ((*tensors)[0].name, "a\"béü");
}

TEST(Safetensors, every_cut_of_a_file_is_refused) {
  const std::string whole = safetensors_bytes(kTensors);
  ASSERT_TRUE(parse(whole));
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(parse(whole.substr(0, n))) << n;
}

TEST(Safetensors, trailing_bytes_are_refused) {
  expect_refusal(parse(safetensors_bytes(kTensors) + "x"), Refusal::CheckpointData,
                 "1 bytes behind the last");
}

TEST(Safetensors, header_lengths_are_bounded) {
  std::string bytes = safetensors_bytes(kTensors);
  for (size_t i = 0; i < 8; ++i) bytes[i] = '\xFF';
  expect_refusal(parse(bytes), Refusal::CheckpointHeader, "a header of 18446744073709551615 bytes");
  const std::string bomb(limits::kSafetensorsHeaderBytesMax + 1, ' ');
  expect_refusal(parse(with_length(bomb)), Refusal::CheckpointHeader, "at most");
  expect_refusal(parse("short"), Refusal::CheckpointHeader, "5 bytes");
}

struct Damage {
  std::string header;
  Refusal refusal;
  const char* detail;
};

// Each header stands before a data section of four bytes.
void expect_refusals(std::initializer_list<Damage> damages) {
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.header);
    const auto tensors = parse(with_length(damage.header) + "data");
    expect_refusal(tensors, damage.refusal, damage.detail);
    expect_refusal(tensors, damage.refusal, "a.safetensors");
  }
}

std::string entry(const char* name, const char* dtype, const char* shape, const char* offsets) {
  return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

// One tensor "a".
std::string one(const char* dtype, const char* shape, const char* offsets) {
  return "{" + entry("a", dtype, shape, offsets) + "}";
}

std::string two(const char* shape_a, const char* offsets_a, const char* shape_b,
                const char* offsets_b) {
  return "{" + entry("a", "U8", shape_a, offsets_a) + "," + entry("b", "U8", shape_b, offsets_b) +
         "}";
}

TEST(Safetensors, headers_that_are_not_of_the_form_are_refused_with_the_place) {
  const Refusal bad = Refusal::CheckpointHeader;
  expect_refusals({
      {"", bad, "expected '{' at byte 0"},
      {" {}", bad, "expected '{'"},
      {"[]", bad, "expected '{'"},
      {"[[[[[[[[[[[[[[[[[[[[", bad, "expected '{'"},
      {"{", bad, "expected a string at byte 1"},
      {R"({"a)", bad, "does not end"},
      {R"({"a\)", bad, "does not end"},
      {R"({"a\q":1})", bad, "not valid JSON"},
      {"{\"a\x01\":1}", bad, "control character"},
      {"{\"a\xFF\":1}", bad, "not valid JSON"},
      {R"({"a":1})", bad, "expected '{'"},
      {R"({"a":{}})", bad, "expected a string"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", bad, "needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", bad, "repeated or unknown key \"dtype\""},
      {R"({"a":{"dtype":"U8","extra":[4]}})", bad, "\"extra\""},
      {one("U8", "4", "0"), bad, "not two numbers"},
      {one("U8", "4", "0,4,8"), bad, "more than 2"},
      {one("U8", "1,1,1,1,1,4", "0,4"), bad, "more than 5"},
      {one("U8", "-4", "0,4"), bad, "without sign"},
      {one("U8", "4.0", "0,4"), bad, "expected ']'"},
      {one("U8", "04", "0,4"), bad, "starts with 0"},
      {one("U8", "18446744073709551616", "0,4"), bad, "64 bits"},
      {one("U8", "4", "0,4") + "x", bad, "behind the header"},
      {"{" + entry("a", "U8", "4", "0,4") + ",}", bad, "expected a string"},
      {"{" + entry(std::string(5000, 'n').c_str(), "U8", "4", "0,4") + "}", bad, "a name of 5000"},
      {R"({"__metadata__":{"a":1}})", bad, "expected a string"},
      {R"({"__metadata__":{},"__metadata__":{}})", bad, "__metadata__ twice"},
  });
}

TEST(Safetensors, tensors_that_do_not_fit_the_data_are_refused_by_name) {
  const Refusal bad = Refusal::CheckpointData;
  expect_refusals({
      {one("F8_E4M3", "4", "0,4"), Refusal::CheckpointDtype, "a: F8_E4M3"},
      {one("bf16", "2", "0,4"), Refusal::CheckpointDtype, "a: bf16"},
      {"{" + entry("a", "U8", "2", "0,2") + "," + entry("a", "U8", "2", "2,4") + "}",
       Refusal::CheckpointDuplicate, "a"},
      {one("U8", "4", "1,5"), bad, "bytes 1 to 5 of 4"},
      {one("U8", "4", "4,0"), bad, "bytes 4 to 0"},
      {one("U8", "3", "0,4"), bad, "3 of u8 in bytes 0 to 4"},
      {one("F32", "4611686018427387904", "0,0"), bad, "of f32"},
      {one("U8", "4294967296,4294967296", "0,0"), bad, "of u8"},
      {one("U8", "0,18446744073709551615", "0,0"), bad, "too large"},
      {one("U8", "4611686018427387904,2,0", "0,0"), bad, "of u8"},
      {two("3", "0,3", "2", "2,4"), bad, "b overlaps"},
      {two("1", "0,1", "2", "2,4"), bad, "b leaves a gap"},
      {one("U8", "2", "2,4"), bad, "a leaves a gap"},
      {two("4", "0,4", "0", "2,2"), bad, "b overlaps"},
      {"{}", bad, "4 bytes behind the last tensor"},
  });
}

TEST(Safetensors, too_many_tensors_are_refused) {
  std::string header = "{";
  for (size_t i = 0; i <= limits::kTensorsMax; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  expect_refusal(parse(with_length(header + "}")), Refusal::CheckpointHeader,
                 "more than 1000000 tensors");
}

TEST(Safetensors, a_file_with_changed_bytes_is_read_or_refused) {
  const std::string whole = safetensors_bytes(kTensors);
  std::mt19937 random(7);
  size_t n_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    n_refused += !parse(bytes);
  }
  EXPECT_GT(n_refused, 10'000u);
}

}  // namespace
}  // namespace roost
