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

void expect_same(const QuantMatrix& have, const QuantMatrix& want) {
  ASSERT_EQ(have.exists(), want.exists());
  if (!want.exists()) return;
  ASSERT_EQ(have.n_out, want.n_out);
  ASSERT_EQ(have.n_in, want.n_in);
  EXPECT_EQ(std::memcmp(have.codes, want.codes, want.n_code_bytes()), 0);
  if (want.format != QuantMatrix::Format::kAffine) return;
  EXPECT_EQ(std::memcmp(have.scales, want.scales, want.n_scale_bytes()), 0);
  EXPECT_EQ(std::memcmp(have.biases, want.biases, want.n_scale_bytes()), 0);
}

void expect_same(const Tensor& have, const Tensor& want) {
  ASSERT_EQ(have.exists(), want.exists());
  if (want.exists()) {
    EXPECT_EQ(std::memcmp(have.data, want.data, want.n_bytes()), 0);
  }
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
    ASSERT_EQ(kept.owned.size(), 1u);
    EXPECT_EQ(kept.checkpoint, nullptr);
    expect_same(kept.embedding, from.embedding);
    expect_same(kept.head, from.head);
    expect_same(kept.final_norm, from.final_norm);
    ASSERT_EQ(kept.layers.size(), from.layers.size());
    const std::byte* begin = kept.owned[0].data();
    for (size_t l = 0; l < from.layers.size(); ++l) {
      const LayerWeights &have = kept.layers[l], &want = from.layers[l];
      ASSERT_EQ(have.is_full_attention, want.is_full_attention);
      expect_same(have.input_norm, want.input_norm);
      expect_same(have.post_norm, want.post_norm);
      expect_same(have.attention.q, want.attention.q);
      expect_same(have.attention.k, want.attention.k);
      expect_same(have.attention.v, want.attention.v);
      expect_same(have.attention.o, want.attention.o);
      expect_same(have.attention.q_norm, want.attention.q_norm);
      expect_same(have.attention.k_norm, want.attention.k_norm);
      expect_same(have.delta.qkv, want.delta.qkv);
      expect_same(have.delta.z, want.delta.z);
      expect_same(have.delta.b, want.delta.b);
      expect_same(have.delta.a, want.delta.a);
      expect_same(have.delta.out, want.delta.out);
      expect_same(have.delta.conv, want.delta.conv);
      expect_same(have.delta.a_log, want.delta.a_log);
      expect_same(have.delta.dt_bias, want.delta.dt_bias);
      expect_same(have.delta.norm, want.delta.norm);
      expect_same(have.mlp.gate, want.mlp.gate);
      expect_same(have.mlp.up, want.mlp.up);
      expect_same(have.mlp.down, want.mlp.down);
      expect_same(have.moe.router, want.moe.router);
      expect_same(have.moe.shared_gate, want.moe.shared_gate);
      expect_same(have.moe.shared.down, want.moe.shared.down);
      ASSERT_EQ(have.moe.experts.size(), want.moe.experts.size());
      for (size_t e = 0; e < want.moe.experts.size(); ++e) {
        expect_same(have.moe.experts[e].gate, want.moe.experts[e].gate);
        expect_same(have.moe.experts[e].up, want.moe.experts[e].up);
        expect_same(have.moe.experts[e].down, want.moe.experts[e].down);
        EXPECT_EQ(have.moe.experts[e].gate.codes - have.moe.experts[0].gate.codes,
                  static_cast<std::ptrdiff_t>(e) *
                      (have.moe.experts[1].gate.codes - have.moe.experts[0].gate.codes));
        const std::byte* place = have.moe.experts[e].down.codes;
        EXPECT_TRUE(place >= begin && place < begin + kept.owned[0].n_bytes());
        EXPECT_EQ((place - begin) % 256, 0);
      }
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
  ASSERT_EQ(kept.owned.size(), 1u);
  EXPECT_EQ(kept.checkpoint, nullptr);
  EXPECT_EQ(kept.identity.low, from.identity.low);
  EXPECT_EQ(kept.identity.high, from.identity.high);
  expect_same(kept.fc, from.fc);
  expect_same(kept.hidden_norm, from.hidden_norm);
  expect_same(kept.norm, from.norm);
  expect_same(kept.selector_hidden, from.selector_hidden);
  expect_same(kept.predecessor, from.predecessor);
  expect_same(kept.successor, from.successor);
  ASSERT_EQ(kept.layers.size(), from.layers.size());
  const std::byte* begin = kept.owned[0].data();
  for (size_t l = 0; l < from.layers.size(); ++l) {
    const DrafterLayerWeights &have = kept.layers[l], &want = from.layers[l];
    expect_same(have.input_norm, want.input_norm);
    expect_same(have.post_norm, want.post_norm);
    expect_same(have.q, want.q);
    expect_same(have.k, want.k);
    expect_same(have.v, want.v);
    expect_same(have.o, want.o);
    expect_same(have.q_norm, want.q_norm);
    expect_same(have.k_norm, want.k_norm);
    expect_same(have.mlp.gate, want.mlp.gate);
    expect_same(have.mlp.up, want.mlp.up);
    expect_same(have.mlp.down, want.mlp.down);
    expect_same(have.attention_conv.base, want.attention_conv.base);
    expect_same(have.attention_conv.dynamic, want.attention_conv.dynamic);
    expect_same(have.mlp_conv.base, want.mlp_conv.base);
    expect_same(have.mlp_conv.dynamic, want.mlp_conv.dynamic);
    EXPECT_TRUE(have.q.codes >= begin && have.q.codes < begin + kept.owned[0].n_bytes());
  }
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
