// Laying weights out on a device and bringing them there.
#include "weights/upload.h"

namespace roost {
namespace {

constexpr size_t kAlign = 256;  // what copy engines and wide loads like

size_t rounded_up(size_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

// Goes over all weights in one order, twice: the first time places are only counted.
class Layout {
 public:
  Layout(WeightTaker& taker, std::byte* base) : taker_(taker), base_(base) {}

  size_t n_bytes() const { return n_bytes_; }

  QuantMatrix place(const QuantMatrix& from, bool is_table = false) {
    if (!from.exists()) return from;
    QuantMatrix kept = is_table ? from : taker_.layout_of(from);
    kept.codes = take(kept.n_code_bytes());
    if (kept.format == QuantMatrix::Format::kAffine) {
      kept.scales = take(kept.n_scale_bytes());
      kept.biases = take(kept.n_scale_bytes());
    }
    if (base_ != nullptr) taker_.take(from, kept);
    return kept;
  }
  GatedMlp place(const GatedMlp& from) {
    return {.gate = place(from.gate), .up = place(from.up), .down = place(from.down)};
  }
  Tensor place(const Tensor& from) {
    if (!from.exists()) return from;
    Tensor kept = from;
    kept.data = take(from.n_bytes());
    if (base_ != nullptr) taker_.device().write(kept.data, from.data, from.n_bytes());
    return kept;
  }

 private:
  std::byte* take(size_t n_bytes) {
    const size_t at = n_bytes_;
    n_bytes_ += rounded_up(n_bytes);
    // Counting, a place only has to be one that exists.
    static std::byte anywhere;
    return base_ == nullptr ? &anywhere : base_ + at;
  }

  WeightTaker& taker_;
  std::byte* base_;
  size_t n_bytes_ = 0;
};

LayerWeights place(const LayerWeights& from, Layout& layout) {
  LayerWeights kept;
  kept.is_full_attention = from.is_full_attention;
  kept.input_norm = layout.place(from.input_norm);
  kept.post_norm = layout.place(from.post_norm);
  if (from.is_full_attention) {
    const FullAttentionWeights& a = from.attention;
    kept.attention = {.q = layout.place(a.q),
                      .k = layout.place(a.k),
                      .v = layout.place(a.v),
                      .o = layout.place(a.o),
                      .q_norm = layout.place(a.q_norm),
                      .k_norm = layout.place(a.k_norm)};
  } else {
    const GatedDeltaWeights& d = from.delta;
    kept.delta = {.qkv = layout.place(d.qkv),
                  .z = layout.place(d.z),
                  .b = layout.place(d.b),
                  .a = layout.place(d.a),
                  .out = layout.place(d.out),
                  .conv = layout.place(d.conv),
                  .a_log = layout.place(d.a_log),
                  .dt_bias = layout.place(d.dt_bias),
                  .norm = layout.place(d.norm)};
  }
  kept.mlp = layout.place(from.mlp);
  kept.moe.router = layout.place(from.moe.router);
  kept.moe.shared_gate = layout.place(from.moe.shared_gate);
  kept.moe.shared = layout.place(from.moe.shared);
  for (const GatedMlp& expert : from.moe.experts) kept.moe.experts.push_back(layout.place(expert));
  return kept;
}

// Fills in what lies on the device; `base` null: only counts.
size_t place_all(const ModelWeights& from, WeightTaker& taker, std::byte* base, size_t n_all,
                 const UploadProgress& progress, ModelWeights& kept) {
  Layout layout(taker, base);
  kept.embedding = layout.place(from.embedding, true);
  kept.head = layout.place(from.head);
  kept.final_norm = layout.place(from.final_norm);
  for (const LayerWeights& layer : from.layers) {
    kept.layers.push_back(place(layer, layout));
    if (base != nullptr && progress) progress(layout.n_bytes(), n_all);
  }
  return layout.n_bytes();
}

DrafterLayerWeights place(const DrafterLayerWeights& from, Layout& layout) {
  const auto conv = [&](const DraftConvWeights& w) {
    return DraftConvWeights{.base = layout.place(w.base), .dynamic = layout.place(w.dynamic)};
  };
  return {.input_norm = layout.place(from.input_norm),
          .post_norm = layout.place(from.post_norm),
          .q = layout.place(from.q),
          .k = layout.place(from.k),
          .v = layout.place(from.v),
          .o = layout.place(from.o),
          .q_norm = layout.place(from.q_norm),
          .k_norm = layout.place(from.k_norm),
          .mlp = layout.place(from.mlp),
          .attention_conv = conv(from.attention_conv),
          .mlp_conv = conv(from.mlp_conv)};
}

// As place_all.
size_t place_drafter(const DrafterWeights& from, WeightTaker& taker, std::byte* base,
                     DrafterWeights& kept) {
  Layout layout(taker, base);
  kept.fc = layout.place(from.fc);
  kept.hidden_norm = layout.place(from.hidden_norm);
  kept.norm = layout.place(from.norm);
  for (const DrafterLayerWeights& layer : from.layers) kept.layers.push_back(place(layer, layout));
  kept.selector_hidden = layout.place(from.selector_hidden);
  kept.predecessor = layout.place(from.predecessor, true);
  kept.successor = layout.place(from.successor, true);
  return layout.n_bytes();
}

Result<Buffer> take_room(WeightTaker& taker, size_t n_bytes) {
  const size_t available = taker.device().available_bytes();
  if (available > 0 && n_bytes > available) {
    return Error{Refusal::MemoryTooSmall, "the weights need " + std::to_string(n_bytes) +
                                              " bytes of the device, have " +
                                              std::to_string(available)};
  }
  return taker.device().take(n_bytes);
}

}  // namespace

void WeightTaker::take(const QuantMatrix& from, const QuantMatrix& kept) {
  device_.write(const_cast<std::byte*>(kept.codes), from.codes, from.n_code_bytes());
  if (from.format != QuantMatrix::Format::kAffine) return;
  device_.write(const_cast<std::byte*>(kept.scales), from.scales, from.n_scale_bytes());
  device_.write(const_cast<std::byte*>(kept.biases), from.biases, from.n_scale_bytes());
}

Result<ModelWeights> upload_weights(const ModelWeights& weights, WeightTaker& taker,
                                    const UploadProgress& progress) {
  ModelWeights counted;
  const size_t n_bytes = place_all(weights, taker, nullptr, 0, progress, counted);
  ROOST_TRY(Buffer room, take_room(taker, n_bytes));
  ModelWeights kept;
  kept.config = weights.config;
  kept.left_out = weights.left_out;
  kept.is_text_only = weights.is_text_only;
  place_all(weights, taker, room.data(), n_bytes, progress, kept);
  kept.owned.push_back(std::move(room));
  kept.bytes_owned = n_bytes;
  taker.device().wait();
  return kept;
}

Result<DrafterWeights> upload_drafter(const DrafterWeights& weights, WeightTaker& taker) {
  DrafterWeights counted;
  const size_t n_bytes = place_drafter(weights, taker, nullptr, counted);
  ROOST_TRY(Buffer room, take_room(taker, n_bytes));
  DrafterWeights kept;
  kept.config = weights.config;
  kept.identity = weights.identity;
  place_drafter(weights, taker, room.data(), kept);
  kept.owned.push_back(std::move(room));
  kept.bytes_owned = n_bytes;
  taker.device().wait();
  return kept;
}

}  // namespace roost
