// The walk is sensitive to what a drafter's implementation can get wrong: each fault costs rounds,
// by far more than a near-tie could. Faults of weights are planted in a copy of the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/golden/draft_walk.h"

namespace roost::testing {
namespace {

using Bytes = std::vector<std::byte>;

// Changes a tensor of the file in place: its name, its entry, its bytes.
using Change = std::function<void(const TensorEntry&, std::span<std::byte>)>;

DrafterWeights changed_drafter(const Change& change) {
  const std::filesystem::path from = ROOST_SOURCE_DIR "/models/fledgling/drafter";
  std::string folder = (std::filesystem::temp_directory_path() / "roost-drafter-XXXXXX").string();
  ROOST_CHECK(mkdtemp(folder.data()) != nullptr);
  std::filesystem::copy(from / "config.json", folder);
  const auto file = MappedFile::open((from / "model.safetensors").string()).value();
  Bytes bytes(file.bytes().begin(), file.bytes().end());
  const auto entries = parse_safetensors(bytes, "drafter").value();
  for (const TensorEntry& entry : entries) {
    const auto offset = static_cast<size_t>(entry.bytes.data() - bytes.data());
    change(entry, std::span(bytes).subspan(offset, entry.bytes.size()));
  }
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  DrafterWeights weights = load_drafter(folder, *target_on_host()).value();
  std::filesystem::remove_all(folder);  // what is mapped stays
  return weights;
}

class DrafterFaults : public ::testing::Test {
 protected:
  DrafterFaults() {
    OpsLimits limits = Qwen35::ops_limits(target_on_host()->config, kContext);
    Drafter::widen(drafter_on_host()->config, kContext, 16, limits);
    ops_ = make_cpu_ops(pool_, limits);
    right_ = rounds({});
  }

  int64_t rounds(const Faults& faults, const DrafterWeights& weights = *drafter_on_host()) {
    DraftRun run(*ops_, faults, weights);
    int64_t n = 0;
    for (const char* name : {"count", "code", "story", "json"})
      n += static_cast<int64_t>(run.walk(answer_named(name), 16).size());
    return n;
  }

  // Mean difference from golden's scores of candidates behind the code prompt.
  double score_error(const DrafterWeights& weights) {
    const json::Value& answer = answer_named("code");
    const Tokens prompt = tokens_of(*answer.find("prompt_ids"));
    const Values want = golden("draft.scores");
    double sum = 0;
    DraftRun run(*ops_, {}, weights);
    run.drafter().set_tap([&](std::string_view place, const Tensor& t) {
      if (place != "scores") return;
      ROOST_CHECK(t.n_elements() == static_cast<int64_t>(want.size()));
      for (size_t i = 0; i < want.size(); ++i)
        sum += std::abs(t.get(static_cast<int64_t>(i)) - want[i]);
    });
    run.read(prompt);
    run.draft(tokens_of(*answer.find("ids"))[0], static_cast<int32_t>(prompt.size()), 16);
    return sum / static_cast<double>(want.size());
  }

  void expect_seen(const char* what, int64_t n) {
    std::printf("  %-45s %ld rounds, right: %ld\n", what, static_cast<long>(n),
                static_cast<long>(right_));
    EXPECT_GT(n, right_ + right_ / 10) << what;
  }

  ThreadPool pool_{2};
  std::unique_ptr<Ops> ops_;
  int64_t right_ = 0;
};

TEST_F(DrafterFaults, taps_of_a_neighbouring_layer_and_a_leaked_anchor_are_seen) {
  expect_seen("taps a layer early", rounds({.tap_shift = -1}));
  expect_seen("taps a layer late", rounds({.tap_shift = 1}));
  expect_seen("the anchor's own tap leaked", rounds({.leaks_anchor = true}));
}

// Both halves of the kernels and of the coefficients, in front of a sublayer and behind it.
TEST_F(DrafterFaults, swapped_sides_of_the_convolution_are_seen) {
  const DrafterWeights swapped =
      changed_drafter([](const TensorEntry& entry, std::span<std::byte> bytes) {
        if (entry.name.find("_conv.") == std::string::npos) return;
        const size_t half = bytes.size() / 2;
        std::swap_ranges(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(half),
                         bytes.begin() + static_cast<std::ptrdiff_t>(half));
      });
  expect_seen("sides of the convolution swapped", rounds({}, swapped));
}

// The rows that the selector projects are 4 to 10 times larger in front of the last norm, by their
// own root mean square, and lack its weights. The walk does not tell: the right token leads by more
// than the selector adds. The scores do.
TEST_F(DrafterFaults, a_norm_that_is_lost_in_front_of_the_selector_is_seen) {
  constexpr float kSize = 7;
  const Tensor norm = drafter_on_host()->norm;
  const DrafterWeights lost =
      changed_drafter([&](const TensorEntry& entry, std::span<std::byte> bytes) {
        if (entry.name != "candidate_selector.hidden_projection.weight") return;
        for (size_t i = 0; i < bytes.size() / 2; ++i) {
          uint16_t word;
          std::memcpy(&word, bytes.data() + 2 * i, sizeof word);
          const auto c = static_cast<int64_t>(i) % norm.n_elements();
          word = bf16_from_f32(f32_from_bf16(word) * kSize / static_cast<float>(norm.get(c)));
          std::memcpy(bytes.data() + 2 * i, &word, sizeof word);
        }
      });
  const double right = score_error(*drafter_on_host()), wrong = score_error(lost);
  std::printf("  scores of candidates, mean error: right %.3f, norm lost %.3f\n", right, wrong);
  EXPECT_GT(wrong, 3 * right);
}

TEST_F(DrafterFaults, a_file_that_is_not_changed_has_the_same_rounds) {
  EXPECT_EQ(rounds({}, changed_drafter([](const TensorEntry&, std::span<std::byte>) {})), right_);
}

// What --drafter-bits 4 rests on.
TEST_F(DrafterFaults, four_bits_hold_the_accept_length) {
  const DrafterWeights narrow = load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter",
                                             *target_on_host(), DrafterWidth::kFourBits)
                                    .value();
  int64_t n = 0, n_narrow = 0;
  for (const json::Value* answer : text_answers()) {
    for (const int32_t n_rows : {16, 8}) {
      n += static_cast<int64_t>(DraftRun(*ops_).walk(*answer, n_rows).size());
      n_narrow += static_cast<int64_t>(DraftRun(*ops_, {}, narrow).walk(*answer, n_rows).size());
    }
  }
  std::printf("  rounds over ten answers at 16 and 8 rows: bf16 %ld, 4 bits %ld\n",
              static_cast<long>(n), static_cast<long>(n_narrow));
  EXPECT_LE(n_narrow, n + n / 40);
}

}  // namespace
}  // namespace roost::testing
