// The reports of inspect and synth on Fledgling and on a synthetic checkpoint.
#include "apps/inspect.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>

#include "apps/load_weights.h"
#include "apps/synth.h"
#include "model/qwen35.h"
#include "text/tokenizer.h"
#include "weights/synthetic_text.h"

namespace roost {
namespace {

const std::string kFledgling = std::string(ROOST_SOURCE_DIR) + "/models/fledgling";

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "roost_test_XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

std::string report_of(const std::string& folder) {
  const Result<LoadedWeights> loaded = load_model_weights(folder, 0, true);
  EXPECT_TRUE(loaded) << to_string(loaded.error());
  ThreadPool pool(1);
  const auto ops = make_cpu_ops(pool, Qwen35::ops_limits(loaded->weights->config, 1));
  return inspect_report(*loaded->weights, *ops);
}

void expect_lines(const std::string& report, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(report.find(part), std::string::npos) << part << "\n" << report;
}

TEST(Inspect, the_report_names_geometry_bytes_kernels_and_what_is_left_out) {
  expect_lines(
      report_of(kFledgling),
      {"8: 6 gated delta, 2 full attention (3,7)", "4 of 16 a token, width 128; shared width 128",
       "model-vision.safetensors", "45 tensors", "vision_tower.", "router                8-bit g64",
       "experts gate, up      4-bit g64", "3072x256", "q8", "q4"});
}

TEST(Inspect, refusals_become_an_exit_status) {
  EXPECT_EQ(run_inspect({.model = kFledgling + "/nowhere"}), 1);
  EXPECT_EQ(run_inspect({.model = kFledgling,
                         .plan = [](auto) -> Result<MemoryPlan> {
                           return Error{Refusal::MemoryTooSmall, "have 1, want 2"};
                         }}),
            1);
}

TEST(Inspect, the_plan_is_printed_when_it_is_asked_for) {
  testing::internal::CaptureStdout();
  print_memory_plan({.weights_mapped = 5,
                     .weights_owned = 4,
                     .pages = 3,
                     .slots = 2,
                     .scratch = 1,
                     .workspace = 1,
                     .n_pages = 7,
                     .n_slots = 9,
                     .n_snapshots = 11,
                     .context_max = 448});
  expect_lines(testing::internal::GetCapturedStdout(),
               {"together", "16", "7 pages of 64 tokens", "9 slots", "11 kept states",
                "context 448 tokens"});
}

TEST(Synth, writes_a_checkpoint_that_inspect_reads) {
  const TempFolder folder;
  SynthOptions options{.synthetic = {.shape = "tiny", .bits = 3, .group = 32, .n_shards = 2},
                       .folder = folder.path + "/new/one",
                       .fledgling_folder = kFledgling};
  EXPECT_EQ(run_synth(options), 0);
  expect_lines(report_of(options.folder),
               {"4: 3 gated delta, 1 full attention (3)", "3-bit g32", "text only"});
  options.synthetic.bits = 7;
  EXPECT_EQ(run_synth(options), 1);
}

TEST(Synth, the_large_tokenizer_is_one_that_the_text_side_reads) {
  const auto files = synthetic_text_files({.shape = "27b"}, kFledgling);
  ASSERT_TRUE(files) << to_string(files.error());
  std::map<std::string, std::string> text_of(files->begin(), files->end());
  const auto read = [&](const char* name) { return *json::parse(text_of.at(name)); };
  const auto tokenizer = Tokenizer::create(read("tokenizer.json"), read("tokenizer_config.json"));
  ASSERT_TRUE(tokenizer) << to_string(tokenizer.error());
  EXPECT_EQ(tokenizer->n_tokens(), 248'077);
  EXPECT_EQ(tokenizer->find_added("<|im_end|>"), 248'046);
  EXPECT_EQ(tokenizer->find_added("<think>"), 248'068);
  EXPECT_EQ(tokenizer->find_added("<|audio_pad|>"), 248'076);
  const std::string text = "The quick brown fox counts 1234 lanterns.\n<|im_end|>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), false), text);
}

}  // namespace
}  // namespace roost
