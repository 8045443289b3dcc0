// Law 1 for the whole model on one backend: the bits of a sequence's logits, K/V, states and conv
// tails are a function of its tokens alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "tests/model_machine.h"
#include "tests/model_run.h"
#include "weights/synthetic.h"

namespace roost {
namespace {

using testing::Feed;
using testing::ModelMachine;
using testing::ModelRun;
using testing::run_in_chunks;

constexpr int64_t kContext = 320;  // five pages
constexpr int64_t kRowsMax = 1024;

struct Subject {
  std::string name;
  SyntheticOptions options;  // shape empty: Fledgling
};

std::vector<Subject> subjects() {
  const auto tiny = [](bool has_experts, int64_t n_heads, int bits, int group, int64_t n_shards,
                       uint64_t seed) {
    SyntheticOptions o;
    o.shape = "tiny";
    o.has_experts = has_experts;
    o.n_heads = n_heads;
    o.bits = bits;
    o.group = group;
    o.n_shards = n_shards;
    o.seed = seed;
    return o;
  };
  return {
      {"fledgling", {}},
      {"routed, 16 heads a KV head, 4 bits by 64, two shards", tiny(true, 32, 4, 64, 2, 1)},
      {"dense, 6 heads a KV head, 8 bits by 32", tiny(false, 12, 8, 32, 1, 2)},
      {"routed, 8 heads a KV head, 3 bits by 128, two shards", tiny(true, 16, 3, 128, 2, 3)},
      {"dense, 16 heads a KV head, 2 bits by 64, two shards", tiny(false, 32, 2, 64, 2, 4)},
      {"routed, 6 heads a KV head, 6 bits by 32", tiny(true, 12, 6, 32, 1, 5)},
      {"dense, 8 heads a KV head, 5 bits by 128", tiny(false, 16, 5, 128, 1, 6)},
  };
}

// A folder that ends with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "roost-laws-XXXXXX").string();
    ROOST_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What was loaded stays, for its address names it.
std::shared_ptr<const ModelWeights> keep(std::shared_ptr<const ModelWeights> weights) {
  static std::vector<std::shared_ptr<const ModelWeights>> kept;
  kept.push_back(weights);
  return weights;
}

std::shared_ptr<const ModelWeights> load(const Subject& subject) {
  static std::map<std::string, std::shared_ptr<const ModelWeights>> loaded;
  auto& weights = loaded[subject.name];
  if (weights) return weights;
  const std::string fledgling = ROOST_SOURCE_DIR "/models/fledgling";
  if (subject.options.shape.empty())
    return weights = testing::placed(keep(testing::load_model(fledgling)));
  const TemporaryFolder folder;  // the mapping keeps the files' bytes after their names are gone
  const auto written = write_synthetic_checkpoint(subject.options, fledgling, folder.path());
  ROOST_CHECK(written);
  return weights = testing::placed(keep(testing::load_model(folder.path())));
}

std::vector<int32_t> random_tokens(const ModelWeights& weights, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens)
    t = static_cast<int32_t>(random() % static_cast<uint64_t>(weights.config.vocabulary));
  return tokens;
}

struct Bits {
  std::vector<float> logits;
  std::vector<std::byte> memory;
};

Bits bits_of(const ModelRun& run, int sequence) {
  return {run.logits(sequence), run.memory_of(sequence)};
}

void expect_equal(const Bits& have, const Bits& want, const std::string& what) {
  ASSERT_EQ(have.logits.size(), want.logits.size()) << what;
  EXPECT_EQ(std::memcmp(have.logits.data(), want.logits.data(), want.logits.size() * sizeof(float)),
            0)
      << what << ": logits differ";
  ASSERT_EQ(have.memory.size(), want.memory.size()) << what;
  EXPECT_EQ(std::memcmp(have.memory.data(), want.memory.data(), want.memory.size()), 0)
      << what << ": K/V, states or tails differ";
}

// The yardstick: one thread, one row a step.
Bits row_by_row(const ModelWeights& weights, const std::vector<int32_t>& tokens) {
  ModelMachine machine(1);
  const auto ops = machine.make_ops(Qwen35::ops_limits(weights.config, kRowsMax));
  ModelRun run(weights, *ops, 1, kContext, kRowsMax, 1);
  run_in_chunks(run, 0, tokens, 1);
  return bits_of(run, 0);
}

class ModelLaws : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    subject_ = subjects()[GetParam()];
    weights_ = load(subject_);
    std::printf("  %s\n", subject_.name.c_str());
  }
  std::unique_ptr<Ops> ops(ModelMachine& machine) const {
    return machine.make_ops(Qwen35::ops_limits(weights_->config, kRowsMax));
  }
  Subject subject_;
  std::shared_ptr<const ModelWeights> weights_;
};

TEST_P(ModelLaws, prompt_in_any_chunks_equals_row_by_row) {
  const std::vector<int32_t> tokens = random_tokens(*weights_, 277, 11);
  const Bits want = row_by_row(*weights_, tokens);
  for (const float logit : want.logits) ASSERT_TRUE(std::isfinite(logit));
  for (const int n_threads : {1, 2}) {
    ModelMachine machine(n_threads);
    const auto backend = ops(machine);
    for (const size_t chunk : {size_t{13}, size_t{64}, size_t{1024}}) {
      ModelRun run(*weights_, *backend, 1, kContext, kRowsMax, 100 + chunk);
      run_in_chunks(run, 0, tokens, chunk);
      expect_equal(
          bits_of(run, 0), want,
          "chunks of " + std::to_string(chunk) + ", " + std::to_string(n_threads) + " threads");
    }
  }
}

// Sequences of different lengths advance in seeded, random cuts within shared steps; each must end
// with the bits it has alone.
TEST_P(ModelLaws, sequences_together_equal_each_alone) {
  constexpr int kInterleavings = 2'000 / 7 + 1;  // 2,000 over all subjects and widths
  std::mt19937_64 random(GetParam() + 77);
  constexpr int kAlone = 6;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Bits> want;
  for (int s = 0; s < kAlone; ++s) {
    tokens.push_back(random_tokens(*weights_, s == 0 ? 131 : 5 + random() % 9, random()));
    want.push_back(row_by_row(*weights_, tokens.back()));
  }
  ModelMachine one(1), two(2);
  const auto ops_one = ops(one), ops_two = ops(two);
  int n_done = 0;
  for (const int width : {1, 3, 16}) {
    const int n_rounds = width == 16 ? kInterleavings / 4 : kInterleavings * 3 / 8 + 1;
    for (int round = 0; round < n_rounds; ++round, ++n_done) {
      ModelRun run(*weights_, round % 2 == 0 ? *ops_two : *ops_one, width, kContext, kRowsMax,
                   random());
      std::vector<int> which(static_cast<size_t>(width));
      std::vector<size_t> at(static_cast<size_t>(width), 0);
      // The long sequence, which crosses pages, takes part in every eighth round.
      for (int& w : which) w = 1 + static_cast<int>(random() % (kAlone - 1));
      if (round % 8 == 0) which[random() % which.size()] = 0;
      for (bool is_open = true; is_open;) {
        is_open = false;
        std::vector<Feed> feeds;
        for (int s = 0; s < width; ++s) {
          const auto i = static_cast<size_t>(s);
          const std::vector<int32_t>& all = tokens[static_cast<size_t>(which[i])];
          const size_t left = all.size() - at[i];
          is_open |= left > 0;
          if (left == 0 || random() % 3 == 0) continue;
          const size_t n = std::min<size_t>(left, 1 + random() % (random() % 2 == 0 ? 2 : 70));
          feeds.push_back({s,
                           {all.begin() + static_cast<int64_t>(at[i]),
                            all.begin() + static_cast<int64_t>(at[i] + n)}});
          at[i] += n;
        }
        std::shuffle(feeds.begin(), feeds.end(), random);
        if (!feeds.empty()) run.step(feeds);
      }
      for (int s = 0; s < width; ++s) {
        expect_equal(bits_of(run, s), want[static_cast<size_t>(which[static_cast<size_t>(s)])],
                     "round " + std::to_string(round) + ", sequence " + std::to_string(s) + " of " +
                         std::to_string(width));
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(n_done, kInterleavings);
}

INSTANTIATE_TEST_SUITE_P(Subjects, ModelLaws, ::testing::Range(size_t{0}, size_t{7}));

// The tests above must be able to fail: a backend that breaks the law in one op is seen.
class LawBreaker final : public Ops {
 public:
  explicit LawBreaker(Ops& inner) : inner_(inner) {}
  void run(const Embed& op) override { inner_.run(op); }
  void run(const AddRmsNorm& op) override { inner_.run(op); }
  void run(const QuantLinear& op) override {
    inner_.run(op);
    // The least possible offence: the last bit of one value, and only when rows come together.
    if (op.x.dim(0) <= 8 || op.parts[0].y.dtype != DType::kBF16) return;
    const Tensor& y = op.parts[0].y;
    uint16_t value = 0;
    device().read(&value, y.data + 14, sizeof value);
    value ^= 1;
    device().write(y.data + 14, &value, sizeof value);
  }
  void run(const ConvGates& op) override { inner_.run(op); }
  void run(const GatedDelta& op) override { inner_.run(op); }
  void run(const QkNormRopeAppend& op) override { inner_.run(op); }
  void run(const Attention& op) override { inner_.run(op); }
  void run(const Route& op) override { inner_.run(op); }
  void run(const MoeExperts& op) override { inner_.run(op); }
  void run(const Sample& op) override { inner_.run(op); }
  void run(const CopyPages& op) override { inner_.run(op); }
  Device& device() override { return inner_.device(); }
  DType activation() const override { return inner_.activation(); }
  std::string name() const override { return "law breaker"; }
  std::string kernel_for(const QuantMatrix& w) const override { return inner_.kernel_for(w); }

 private:
  Ops& inner_;
};

TEST(ModelLawsFault, one_flipped_bit_in_a_chunk_is_seen) {
  const auto weights = load(subjects()[0]);
  const std::vector<int32_t> tokens = random_tokens(*weights, 30, 3);
  const Bits want = row_by_row(*weights, tokens);
  ModelMachine machine(1);
  const auto ops = machine.make_ops(Qwen35::ops_limits(weights->config, kRowsMax));
  LawBreaker broken(*ops);
  ModelRun run(*weights, broken, 1, kContext, kRowsMax, 4);
  run_in_chunks(run, 0, tokens, 13);
  const Bits have = bits_of(run, 0);
  EXPECT_NE(std::memcmp(have.memory.data(), want.memory.data(), want.memory.size()), 0);
}

}  // namespace
}  // namespace roost
