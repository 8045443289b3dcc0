// Folders of shards, with and without an index.
#include <gtest/gtest.h>

#include "weights/checkpoint.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;
using test::index_json;
using test::safetensors_bytes;
using test::TempFolder;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string shard_of(const std::string& name, const std::string& bytes = "ab") {
  return safetensors_bytes({{name, {"U8", {static_cast<int64_t>(bytes.size())}, bytes}}});
}

TEST(Checkpoint, reads_the_shards_that_the_index_names) {
  const TempFolder folder;
  folder.write("b.safetensors", shard_of("model.norm.weight"));
  folder.write("a.safetensors", shard_of("lm_head.weight", "xyz"));
  folder.write("model-other.safetensors", "not read");
  for (const char* total : {"5", "5.0", "71903645408.0", "7e10"}) {
    folder.write(kIndex, index_json({{"model.norm.weight", "b.safetensors"},
                                     {"lm_head.weight", "a.safetensors"}},
                                    total));
    const auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
    EXPECT_EQ(checkpoint->files(), (std::vector<std::string>{"a.safetensors", "b.safetensors"}));
    const TensorEntry* head = checkpoint->find("lm_head.weight");
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->bytes.size(), 3u);
    EXPECT_EQ(checkpoint->files()[static_cast<size_t>(head->file)], "a.safetensors");
    EXPECT_EQ(checkpoint->find("lm_head.bias"), nullptr);
  }
}

TEST(Checkpoint, reads_every_model_file_without_an_index) {
  const TempFolder folder;
  folder.write("model-00001-of-00002.safetensors",
               test::with_length("{}"));  // an empty first shard
  folder.write("model-00002-of-00002.safetensors", shard_of("model.norm.weight"));
  folder.write("model-vision.safetensors", shard_of("vision_tower.x"));
  folder.write("drafter.safetensors", "not read");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
  EXPECT_EQ(checkpoint->files().size(), 3u);
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
}

TEST(Checkpoint, a_missing_vision_shard_is_named_and_left_out) {
  const TempFolder folder;
  folder.write("model-00001-of-00001.safetensors", shard_of("model.norm.weight"));
  folder.write(kIndex, index_json({{"model.norm.weight", "model-00001-of-00001.safetensors"},
                                   {"vision_tower.x", "model-vision.safetensors"}},
                                  "4"));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
  EXPECT_EQ(checkpoint->missing_vision_shards(),
            (std::vector<std::string>{"model-vision.safetensors"}));
  EXPECT_EQ(checkpoint->files().size(), 1u);
}

TEST(Checkpoint, a_missing_shard_with_text_in_it_is_refused) {
  const TempFolder folder;
  folder.write("a.safetensors", shard_of("model.norm.weight"));
  folder.write(kIndex, index_json({{"model.norm.weight", "a.safetensors"},
                                   {"vision_tower.x", "b.safetensors"},
                                   {"lm_head.weight", "b.safetensors"}},
                                  "4"));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointShard,
                 "b.safetensors: holds lm_head.weight");
}

TEST(Checkpoint, a_gap_in_the_shards_numbers_is_refused) {
  const TempFolder folder;
  folder.write("model-00001-of-00003.safetensors", shard_of("a"));
  folder.write("model-00003-of-00003.safetensors", shard_of("b"));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointShard, "2 of 3 shards");
}

TEST(Checkpoint, a_tensor_in_two_shards_is_refused) {
  const TempFolder folder;
  folder.write("model-a.safetensors", shard_of("lm_head.weight"));
  folder.write("model-b.safetensors", shard_of("lm_head.weight"));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointDuplicate,
                 "model-b.safetensors: lm_head.weight");
}

TEST(Checkpoint, damaged_indexes_are_refused) {
  const TempFolder folder;
  folder.write("a.safetensors", shard_of("model.norm.weight"));
  const std::pair<const char*, const char*> damages[] = {
      {"", "model.safetensors.index.json"},
      {"[]", "weight_map"},
      {R"({"weight_map": 3})", "weight_map"},
      {R"({"weight_map": {"x": 3}})", "x: not the name"},
      {R"({"weight_map": {"x": "../a.safetensors"}})", "x: not the name"},
      {R"({"weight_map": {"x": "/a.safetensors"}})", "x: not the name"},
      {R"({"weight_map": {"x": "a\u0000.safetensors"}})", "x: not the name"},
      {R"({"weight_map": {"x": "a.bin"}})", "x: not the name"},
      {R"({"metadata": {"total_size": "5"}, "weight_map": {}})", "total_size"},
      {R"({"metadata": {"total_size": -5}, "weight_map": {}})", "total_size"},
      {R"({"weight_map": {}})", "none of its shards"},
      {R"({"weight_map": {"vision_tower.x": "gone.safetensors"}})", "none of its shards"},
      {R"({"weight_map": {"x": "a.safetensors", "x": "a.safetensors"}})", "x twice"},
      {R"({"weight_map": {"lm_head.weight": "a.safetensors"}})",
       "lm_head.weight is not in a.safetensors"},
  };
  const std::string long_name(5000, 'n');
  folder.write(kIndex, index_json({{long_name, "a.safetensors"}}, "1"));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointIndex, "a name too long");
  for (const auto& [text, detail] : damages) {
    SCOPED_TRACE(text);
    folder.write(kIndex, text);
    expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointIndex, detail);
  }
}

TEST(Checkpoint, an_index_that_names_another_shard_is_refused) {
  const TempFolder folder;
  folder.write("a.safetensors", shard_of("model.norm.weight"));
  folder.write("b.safetensors", shard_of("lm_head.weight"));
  folder.write(kIndex, index_json({{"model.norm.weight", "b.safetensors"},
                                   {"lm_head.weight", "a.safetensors"}},
                                  "4"));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointIndex,
                 "lm_head.weight is not in a.safetensors");
}

TEST(Checkpoint, gguf_and_empty_folders_are_refused_by_name) {
  const TempFolder folder;
  expect_refusal(Checkpoint::open(folder.path()), Refusal::FileMissing, "no model*.safetensors");
  expect_refusal(Checkpoint::open(folder.path() + "/nowhere"), Refusal::FileMissing, "nowhere");
  folder.write("ornith-Q4_K_M.gguf", "GGUF");
  expect_refusal(Checkpoint::open(folder.path()), Refusal::QuantFormat, "ornith-Q4_K_M.gguf: GGUF");
  expect_refusal(Checkpoint::open(folder.path() + "/ornith-Q4_K_M.gguf"), Refusal::QuantFormat,
                 "GGUF");
}

TEST(Checkpoint, a_truncated_shard_is_refused) {
  const TempFolder folder;
  const std::string whole = shard_of("lm_head.weight");
  folder.write("model.safetensors", whole.substr(0, whole.size() - 1));
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointData,
                 "lm_head.weight: bytes 0 to 2 of 1");
  folder.write("model.safetensors", "");
  expect_refusal(Checkpoint::open(folder.path()), Refusal::CheckpointHeader, "0 bytes");
}

}  // namespace
}  // namespace roost
