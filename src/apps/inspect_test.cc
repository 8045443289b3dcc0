// The reports of inspect and synth on Fledgling and on a synthetic checkpoint.
#include "apps/inspect.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
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

// Bytes of a folder's files that stand beside links to Fledgling's own.
std::string folder_with(const TempFolder& folder, const std::string& name,
                        const std::string& text) {
  const std::filesystem::path to =
      folder.path + "/" + std::to_string(std::hash<std::string>()(text));
  std::filesystem::create_directory(to);
  for (const auto& entry : std::filesystem::directory_iterator(kFledgling)) {
    if (entry.path().filename() != name)
      std::filesystem::create_symlink(entry.path(), to / entry.path().filename());
  }
  std::ofstream(to / name) << text;
  return to;
}

struct Inspected {
  int status;
  std::string report, refusals;
};

Inspected inspect(const InspectOptions& options) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = run_inspect(options);
  std::fflush(stdout), std::fflush(stderr);
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

InspectOptions options_of(const std::string& folder) {
  InspectOptions options;
  options.load.folder = folder;
  return options;
}

TEST(Inspect, what_can_be_served_has_status_0_and_a_plan) {
  const Inspected fledgling = inspect(options_of(kFledgling));
  EXPECT_EQ(fledgling.status, 0) << fledgling.refusals;
  EXPECT_EQ(fledgling.refusals.find("refused"), std::string::npos);
  expect_lines(fledgling.report, {"kernels on cpu", "  attention ", "  route ", "memory plan"});
  InspectOptions plan_alone = options_of(kFledgling);
  plan_alone.is_plan_alone = true;
  EXPECT_EQ(inspect(plan_alone).report.find("kernels on"), std::string::npos);
}

TEST(Inspect, everything_that_a_server_would_refuse_is_named) {
  const TempFolder folder;
  const auto expect_refused = [&](const InspectOptions& options, const char* code,
                                  const char* name) {
    const Inspected seen = inspect(options);
    EXPECT_EQ(seen.status, 1) << code;
    expect_lines(seen.refusals, {"roost: ", code, name});
  };
  expect_refused(options_of(kFledgling + "/nowhere"), "file.", "nowhere");
  expect_refused(options_of(folder_with(folder, "config.json", "{")), "json.", "config.json");
  expect_refused(options_of(folder_with(folder, "tokenizer.json", "{}")), "tokenizer.", "");
  expect_refused(options_of(folder_with(folder, "chat_template.jinja", "{{ 1 | nonsense }}")),
                 "template.", "nonsense");
  InspectOptions small = options_of(kFledgling);
  small.load.engine.memory_max = 1 << 20;
  expect_refused(small, "memory.", "");
  InspectOptions drafter = options_of(kFledgling);
  drafter.load.drafter = folder.path;
  expect_refused(drafter, "file.", "config.json");
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
  EXPECT_EQ(run_synth(options), 2);  // a bad command line
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
