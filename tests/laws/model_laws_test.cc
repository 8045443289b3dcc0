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

constexpr int64_t kContext = 320;       // five pages
constexpr int64_t kLongContext = 1152;  // more keys than attention sums at once
constexpr int64_t kRowsMax = 1152;

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

// The yardstick: one thread, one row a step, from the first token or from `from`: n_from tokens and
// what they left.
Bits row_by_row(const ModelWeights& weights, const std::vector<int32_t>& tokens,
                int64_t context = kContext, int32_t n_from = 0, const Bits& from = {}) {
  ModelMachine machine(1);
  const auto ops = machine.make_ops(Qwen35::ops_limits(weights.config, kRowsMax));
  ModelRun run(weights, *ops, 1, context, kRowsMax, 1);
  if (n_from > 0) run.restore(0, n_from, from.memory);
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
  // Fledgling and the first small model read as many tokens as fill a chunk of 1,024 and more.
  const bool is_long = GetParam() <= 1;
  const int64_t context = is_long ? kLongContext : kContext;
  const std::vector<int32_t> tokens = random_tokens(*weights_, is_long ? 1107 : 277, 11);
  const Bits want = row_by_row(*weights_, tokens, context);
  for (const float logit : want.logits) ASSERT_TRUE(std::isfinite(logit));
  for (const int n_threads : {1, 2}) {
    ModelMachine machine(n_threads);
    const auto backend = ops(machine);
    for (const size_t chunk : {size_t{13}, size_t{64}, size_t{1024}, tokens.size()}) {
      if (chunk > tokens.size()) continue;
      ModelRun run(*weights_, *backend, 1, context, kRowsMax, 100 + chunk);
      run_in_chunks(run, 0, tokens, chunk);
      expect_equal(
          bits_of(run, 0), want,
          "chunks of " + std::to_string(chunk) + ", " + std::to_string(n_threads) + " threads");
    }
  }
}

// A sequence that stands at some length, and what it becomes alone with some tokens more. All have
// several pages, begin and end anywhere in one, and most cross into the next.
struct Continuation {
  int32_t n_before;
  Bits before;                  // after those
  std::vector<int32_t> tokens;  // the next ones
  Bits want;                    // logits of these, memory of all
};

Continuation continuation(const ModelWeights& weights, size_t n_before, size_t n_tokens,
                          uint64_t seed) {
  Continuation c;
  const std::vector<int32_t> before = random_tokens(weights, n_before, seed);
  c.n_before = static_cast<int32_t>(n_before);
  c.before = row_by_row(weights, before);
  c.tokens = random_tokens(weights, n_tokens, seed + 1);
  c.want = row_by_row(weights, c.tokens, kContext, c.n_before, c.before);
  return c;
}

// The given continuations side by side, in random cuts within shared steps.
void run_together(ModelRun& run, const std::vector<const Continuation*>& sequences,
                  std::mt19937_64& random) {
  std::vector<size_t> at(sequences.size(), 0);
  for (size_t s = 0; s < sequences.size(); ++s)
    run.restore(static_cast<int>(s), sequences[s]->n_before, sequences[s]->before.memory);
  for (bool is_open = true; is_open;) {
    is_open = false;
    std::vector<Feed> feeds;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const std::vector<int32_t>& all = sequences[s]->tokens;
      const size_t left = all.size() - at[s];
      is_open |= left > 0;
      if (left == 0 || random() % 3 == 0) continue;
      const size_t n = std::min<size_t>(left, 1 + random() % (random() % 2 == 0 ? 2 : 70));
      feeds.push_back({static_cast<int>(s),
                       {all.begin() + static_cast<int64_t>(at[s]),
                        all.begin() + static_cast<int64_t>(at[s] + n)}});
      at[s] += n;
    }
    std::shuffle(feeds.begin(), feeds.end(), random);
    if (!feeds.empty()) run.step(feeds);
  }
}

// Sequences of different lengths advance in seeded, random cuts within shared steps; each must end
// with the bits it has alone.
TEST_P(ModelLaws, sequences_together_equal_each_alone) {
  // 2,000 over all subjects and widths; codes of 3, 5 and 6 bits take three times as long.
  const bool is_slow = subject_.options.bits % 2 == 1 || subject_.options.bits == 6;
  const int n_interleavings = subject_.options.shape.empty() ? 286 : is_slow ? 140 : 432;
  std::mt19937_64 random(GetParam() + 77);
  std::vector<Continuation> known;
  for (const auto& [n_before, n_tokens] : std::vector<std::pair<size_t, size_t>>{
           {67, 9}, {125, 6}, {190, 7}, {120, 13}, {81, 131}, {253, 8}}) {
    known.push_back(continuation(*weights_, n_before, n_tokens, random()));
  }
  ModelMachine one(1), two(2);
  const auto ops_one = ops(one), ops_two = ops(two);
  int n_done = 0;
  for (const int width : {1, 3, 16}) {
    const int n_rounds = width == 16 ? n_interleavings / 4 : n_interleavings * 3 / 8 + 1;
    for (int round = 0; round < n_rounds; ++round, ++n_done) {
      ModelRun run(*weights_, round % 2 == 0 ? *ops_two : *ops_one, width, kContext, kRowsMax,
                   random());
      std::vector<const Continuation*> sequences;
      // The long one takes part in every eighth round.
      while (sequences.size() < static_cast<size_t>(width)) {
        const size_t which = random() % known.size();
        if (known[which].tokens.size() < 100 || round % 8 == 0) sequences.push_back(&known[which]);
      }
      run_together(run, sequences, random);
      for (int s = 0; s < width; ++s) {
        expect_equal(bits_of(run, s), sequences[static_cast<size_t>(s)]->want,
                     "round " + std::to_string(round) + ", sequence " + std::to_string(s) + " of " +
                         std::to_string(width));
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(n_done, n_interleavings);
}

INSTANTIATE_TEST_SUITE_P(Subjects, ModelLaws, ::testing::Range(size_t{0}, size_t{7}));

// The tests above must be able to fail: a backend that breaks the law in one op by the last bits of
// a few values is seen.
class LawBreaker final : public Ops {
 public:
  enum class Fault {
    kRows,     // when more than eight rows come together
    kCompany,  // when a second sequence is there
    kPages,    // when a sequence's pages do not follow each other
    kThreads,  // always, as threads do that sum in another order
  };
  LawBreaker(Ops& inner, Fault fault) : inner_(inner), fault_(fault) {}
  void run(const Embed& op) override { inner_.run(op); }
  void run(const AddRmsNorm& op) override { inner_.run(op); }
  void run(const QuantLinear& op) override {
    inner_.run(op);
    if (op.parts[0].y.dtype != DType::kBF16) return;
    if (fault_ == Fault::kThreads || (fault_ == Fault::kRows && op.x.dim(0) > 8))
      flip(op.parts[0].y);
  }
  void run(const ConvGates& op) override { inner_.run(op); }
  void run(const GatedDelta& op) override { inner_.run(op); }
  void run(const QkNormRopeAppend& op) override { inner_.run(op); }
  void run(const Attention& op) override {
    inner_.run(op);
    const RowSpan& span = op.spans[0];
    const bool pages_follow = span.first_index + span.n_rows <= kPageTokens ||
                              span.page_table[1] == span.page_table[0] + 1;
    if ((fault_ == Fault::kCompany && op.spans.size() > 1) ||
        (fault_ == Fault::kPages && !pages_follow))
      flip(op.out);
  }
  void run(const Route& op) override { inner_.run(op); }
  void run(const MoeExperts& op) override { inner_.run(op); }
  void run(const Sample& op) override { inner_.run(op); }
  void run(const CopyPages& op) override { inner_.run(op); }
  Device& device() override { return inner_.device(); }
  DType activation() const override { return inner_.activation(); }
  std::string name() const override { return "law breaker"; }
  std::string kernel_for(const QuantMatrix& w) const override { return inner_.kernel_for(w); }

 private:
  // Rounding behind it may hide the bit of a single value.
  void flip(const Tensor& y) {
    uint16_t values[16];
    device().read(values, y.data, sizeof values);
    for (uint16_t& value : values) value ^= 1;
    device().write(y.data, values, sizeof values);
  }
  Ops& inner_;
  Fault fault_;
};

class ModelLawsFault : public ::testing::TestWithParam<LawBreaker::Fault> {};

TEST_P(ModelLawsFault, flipped_last_bits_are_seen) {
  const auto weights = load(subjects()[0]);
  const Continuation a = continuation(*weights, 67, 30, 3), b = continuation(*weights, 70, 9, 5);
  ModelMachine machine(2);
  const auto ops = machine.make_ops(Qwen35::ops_limits(weights->config, kRowsMax));
  const auto differs = [&](Ops& backend) {
    ModelRun run(*weights, backend, 2, kContext, kRowsMax, 4);
    run.restore(0, a.n_before, a.before.memory);
    run.restore(1, b.n_before, b.before.memory);
    run.step({{0, a.tokens}, {1, b.tokens}});
    const Bits have = bits_of(run, 0);
    return have.memory != a.want.memory || have.logits != a.want.logits;
  };
  EXPECT_FALSE(differs(*ops));
  LawBreaker broken(*ops, GetParam());
  EXPECT_TRUE(differs(broken));
}

INSTANTIATE_TEST_SUITE_P(Faults, ModelLawsFault,
                         ::testing::Values(LawBreaker::Fault::kRows, LawBreaker::Fault::kCompany,
                                           LawBreaker::Fault::kPages, LawBreaker::Fault::kThreads));

}  // namespace
}  // namespace roost
