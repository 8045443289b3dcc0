#include "weights/upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/file.h"
#include "weights/synthetic_memory.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

// Memory of the host that says how much it holds, as a small card would.
class SmallDevice final : public Device {
 public:
  explicit SmallDevice(size_t n_bytes) : n_bytes_(n_bytes) {}
  Buffer take(size_t n_bytes) override { return host_device().take(n_bytes); }
  void write(std::byte* to, const void* from, size_t n_bytes) override {
    host_device().write(to, from, n_bytes);
  }
  void clear(std::byte* to, size_t n_bytes) override { host_device().clear(to, n_bytes); }
  void copy(std::byte* to, const std::byte* from, size_t n_bytes) override {
    host_device().copy(to, from, n_bytes);
  }
  void read(void* to, const std::byte* from, size_t n_bytes) override {
    host_device().read(to, from, n_bytes);
  }
  void wait() override {}
  size_t available_bytes() const override { return n_bytes_; }

 private:
  size_t n_bytes_;
};

ModelWeights tiny(bool has_experts) {
  SyntheticOptions options;
  options.shape = "tiny";
  options.has_experts = has_experts;
  static std::vector<SyntheticMemory> kept;  // weights borrow from their checkpoint
  kept.push_back(SyntheticMemory::create(options, true).value());
  return load_weights(kept.back().checkpoint(), kept.back().config()).value();
}

// Everything that one layer holds, or what stands beside the layers.
struct Parts {
  std::vector<QuantMatrix> matrices;
  std::vector<Tensor> tensors;

  void add(const GatedMlp& mlp) { matrices.insert(matrices.end(), {mlp.gate, mlp.up, mlp.down}); }
};

Parts parts_of(const LayerWeights& w) {
  const FullAttentionWeights& a = w.attention;
  const GatedDeltaWeights& d = w.delta;
  Parts parts{{a.q, a.k, a.v, a.o, d.qkv, d.z, d.b, d.a, d.out, w.moe.router, w.moe.shared_gate},
              {w.input_norm, w.post_norm, a.q_norm, a.k_norm, d.conv, d.a_log, d.dt_bias, d.norm}};
  parts.add(w.mlp);
  parts.add(w.moe.shared);
  for (const GatedMlp& expert : w.moe.experts) parts.add(expert);
  return parts;
}

Parts parts_of(const DrafterLayerWeights& w) {
  Parts parts{
      {w.q, w.k, w.v, w.o, w.attention_conv.dynamic, w.mlp_conv.dynamic},
      {w.input_norm, w.post_norm, w.q_norm, w.k_norm, w.attention_conv.base, w.mlp_conv.base}};
  parts.add(w.mlp);
  return parts;
}

Parts outer_parts_of(const ModelWeights& w) {
  return {{w.embedding, w.head}, {w.final_norm}};
}

Parts outer_parts_of(const DrafterWeights& w) {
  return {{w.fc, w.selector_hidden, w.predecessor, w.successor}, {w.hidden_norm, w.norm}};
}

// The same bytes, at aligned places of the one piece of memory.
void expect_copy(const std::byte* have, const std::byte* want, size_t n_bytes, const Buffer& room) {
  EXPECT_TRUE(have >= room.data() && have + n_bytes <= room.data() + room.n_bytes());
  EXPECT_EQ((have - room.data()) % 256, 0);
  EXPECT_EQ(std::memcmp(have, want, n_bytes), 0);
}

void expect_copies(const Parts& have, const Parts& want, const Buffer& room) {
  ASSERT_EQ(have.matrices.size(), want.matrices.size());
  for (size_t i = 0; i < want.matrices.size(); ++i) {
    const QuantMatrix &h = have.matrices[i], &w = want.matrices[i];
    ASSERT_EQ(h.exists(), w.exists()) << i;
    if (!w.exists()) continue;
    ASSERT_EQ(h.n_out, w.n_out);
    ASSERT_EQ(h.n_in, w.n_in);
    expect_copy(h.codes, w.codes, w.n_code_bytes(), room);
    if (w.format != QuantMatrix::Format::kAffine) continue;
    expect_copy(h.scales, w.scales, w.n_scale_bytes(), room);
    expect_copy(h.biases, w.biases, w.n_scale_bytes(), room);
  }
  ASSERT_EQ(have.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) {
    const Tensor &h = have.tensors[i], &w = want.tensors[i];
    ASSERT_EQ(h.exists(), w.exists()) << i;
    if (w.exists()) expect_copy(h.data, w.data, w.n_bytes(), room);
  }
}

template <class Weights>
void expect_all_arrived(const Weights& kept, const Weights& from) {
  ASSERT_EQ(kept.owned.size(), 1u);
  EXPECT_EQ(kept.checkpoint, nullptr);
  expect_copies(outer_parts_of(kept), outer_parts_of(from), kept.owned[0]);
  ASSERT_EQ(kept.layers.size(), from.layers.size());
  for (size_t l = 0; l < from.layers.size(); ++l)
    expect_copies(parts_of(kept.layers[l]), parts_of(from.layers[l]), kept.owned[0]);
}

void expect_equal_distances(const std::vector<GatedMlp>& experts) {
  ASSERT_GE(experts.size(), 2u);
  const std::ptrdiff_t distance = experts[1].gate.codes - experts[0].gate.codes;
  for (size_t e = 0; e < experts.size(); ++e)
    EXPECT_EQ(experts[e].gate.codes - experts[0].gate.codes,
              static_cast<std::ptrdiff_t>(e) * distance);
}

TEST(Upload, every_weight_arrives_and_none_is_borrowed) {
  for (const bool has_experts : {true, false}) {
    const ModelWeights from = tiny(has_experts);
    WeightTaker taker(host_device());
    size_t n_done_last = 0, n_all_last = 0;
    const ModelWeights kept = upload_weights(from, taker, [&](size_t n_done, size_t n_all) {
                                EXPECT_GT(n_done, n_done_last);
                                n_done_last = n_done;
                                n_all_last = n_all;
                              }).value();
    EXPECT_EQ(n_done_last, n_all_last);
    expect_all_arrived(kept, from);
    for (size_t l = 0; l < from.layers.size(); ++l) {
      EXPECT_EQ(kept.layers[l].is_full_attention, from.layers[l].is_full_attention);
      if (has_experts) expect_equal_distances(kept.layers[l].moe.experts);
    }
  }
}

DrafterWeights bundled_drafter() {
  const std::string folder = ROOST_SOURCE_DIR "/models/fledgling";
  const auto text = read_file(folder + "/config.json", 1 << 20);
  return load_drafter(folder + "/drafter", test::load_folder(folder, *text).value()).value();
}

TEST(Upload, every_weight_of_a_drafter_arrives_and_none_is_borrowed) {
  const DrafterWeights from = bundled_drafter();
  WeightTaker taker(host_device());
  const DrafterWeights kept = upload_drafter(from, taker).value();
  EXPECT_EQ(kept.identity, from.identity);
  expect_all_arrived(kept, from);
}

TEST(Upload, weights_that_the_device_cannot_hold_are_refused) {
  SmallDevice small(1 << 10);
  WeightTaker small_taker(small);
  const Result<DrafterWeights> drafter = upload_drafter(bundled_drafter(), small_taker);
  ASSERT_FALSE(drafter);
  EXPECT_EQ(drafter.error().refusal, Refusal::MemoryTooSmall);
  SmallDevice device(1 << 20);
  WeightTaker taker(device);
  const Result<ModelWeights> kept = upload_weights(tiny(true), taker, {});
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().refusal, Refusal::MemoryTooSmall);
}

TEST(SyntheticMemory, has_the_tensors_of_the_folder_and_finds_them_by_their_bytes) {
  SyntheticOptions options;
  options.shape = "tiny";
  options.seed = 7;
  const SyntheticMemory filled = SyntheticMemory::create(options, true).value();
  const SyntheticMemory bare = SyntheticMemory::create(options, false).value();
  std::set<std::string> left_bare;
  for (const SyntheticTensor& tensor : synthetic_tensors(options).value()) {
    std::vector<std::byte> want(tensor.n_bytes());
    fill_synthetic(tensor, options.seed, 0, want);
    const TensorEntry* have = filled.checkpoint()->find(tensor.name);
    ASSERT_NE(have, nullptr) << tensor.name;
    EXPECT_EQ(have->dtype, tensor.dtype);
    EXPECT_EQ(have->shape, tensor.shape);
    EXPECT_EQ(std::memcmp(have->bytes.data(), want.data(), want.size()), 0) << tensor.name;
    const SyntheticMemory::Place place = filled.find(have->bytes.data() + want.size() - 1);
    ASSERT_NE(place.tensor, nullptr) << tensor.name;
    EXPECT_EQ(place.tensor->name, tensor.name);
    EXPECT_EQ(place.offset, want.size() - 1);
    const TensorEntry* other = bare.checkpoint()->find(tensor.name);
    if (std::memcmp(other->bytes.data(), want.data(), want.size()) != 0)
      left_bare.insert(tensor.name.substr(tensor.name.rfind('.')));
  }
  EXPECT_EQ(left_bare, (std::set<std::string>{".weight", ".scales", ".biases"}));
  std::byte elsewhere{};
  EXPECT_EQ(filled.find(&elsewhere).tensor, nullptr);
}

}  // namespace
}  // namespace roost
