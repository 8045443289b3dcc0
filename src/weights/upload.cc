// Laying weights out on a device and bringing them there.
#include "weights/upload.h"

namespace roost {
namespace {

constexpr size_t kAlign = 256;  // what copy engines and wide loads like

size_t rounded_up(size_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

// Gives weights their places, one behind the other. base null: places are only counted.
class Layout {
 public:
  Layout(WeightTaker& taker, std::byte* base) : taker_(taker), base_(base) {}

  bool is_counting() const { return base_ == nullptr; }
  size_t n_bytes() const { return n_bytes_; }

  // Each part, in this order, becomes what lies on the device; one that does not exist stays so.
  template <class... Parts>
  void place(Parts&... parts) {
    (place_one(parts), ...);
  }
  void place_table(QuantMatrix& w) { place_as(w, w); }

 private:
  void place_one(QuantMatrix& w) { place_as(w, taker_.layout_of(w)); }
  void place_one(GatedMlp& mlp) { place(mlp.gate, mlp.up, mlp.down); }
  void place_one(Tensor& tensor) {
    if (!tensor.exists()) return;
    const std::byte* from = tensor.data;
    tensor.data = take(tensor.n_bytes());
    if (!is_counting()) taker_.device().write(tensor.data, from, tensor.n_bytes());
  }

  void place_as(QuantMatrix& w, QuantMatrix kept) {
    if (!w.exists()) return;
    kept.codes = take(kept.n_code_bytes());
    if (kept.format == QuantMatrix::Format::kAffine) {
      kept.scales = take(kept.n_scale_bytes());
      kept.biases = take(kept.n_scale_bytes());
    }
    if (!is_counting()) taker_.take(w, kept);
    w = kept;
  }

  std::byte* take(size_t n_bytes) {
    const size_t at = n_bytes_;
    n_bytes_ += rounded_up(n_bytes);
    // Counting, a place only has to be one that exists.
    static std::byte anywhere;
    return is_counting() ? &anywhere : base_ + at;
  }

  WeightTaker& taker_;
  std::byte* base_;
  size_t n_bytes_ = 0;
};

void place(LayerWeights& w, Layout& layout) {
  layout.place(w.input_norm, w.post_norm);
  FullAttentionWeights& a = w.attention;
  layout.place(a.q, a.k, a.v, a.o, a.q_norm, a.k_norm);
  GatedDeltaWeights& d = w.delta;
  layout.place(d.qkv, d.z, d.b, d.a, d.out, d.conv, d.a_log, d.dt_bias, d.norm);
  layout.place(w.mlp, w.moe.router, w.moe.shared_gate, w.moe.shared);
  for (GatedMlp& expert : w.moe.experts) layout.place(expert);
}

void place(DrafterLayerWeights& w, Layout& layout) {
  layout.place(w.input_norm, w.post_norm, w.q, w.k, w.v, w.o, w.q_norm, w.k_norm, w.mlp);
  for (DraftConvWeights* conv : {&w.attention_conv, &w.mlp_conv})
    layout.place(conv->base, conv->dynamic);
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

// Counts the bytes of the weights, takes them in one piece, and brings everything to its place.
// place_all(layout, kept) is called once for each of the first and the last.
template <class Weights, class PlaceAll>
Result<void> lay_out(WeightTaker& taker, Weights& kept, const PlaceAll& place_all) {
  Weights counted;
  Layout counting(taker, nullptr);
  place_all(counting, counted);
  const size_t n_bytes = counting.n_bytes();
  ROOST_TRY(Buffer room, take_room(taker, n_bytes));
  Layout layout(taker, room.data());
  place_all(layout, kept);
  kept.owned.push_back(std::move(room));
  kept.bytes_owned = n_bytes;
  taker.device().wait();
  return {};
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
  ModelWeights kept;
  kept.config = weights.config;
  kept.left_out = weights.left_out;
  kept.is_text_only = weights.is_text_only;
  size_t n_all = 0;  // known when all has been counted
  ROOST_TRY_DO(lay_out(taker, kept, [&](Layout& layout, ModelWeights& to) {
    to.embedding = weights.embedding;
    to.head = weights.head;
    to.final_norm = weights.final_norm;
    to.layers = weights.layers;
    layout.place_table(to.embedding);
    layout.place(to.head, to.final_norm);
    for (LayerWeights& layer : to.layers) {
      place(layer, layout);
      if (!layout.is_counting() && progress) progress(layout.n_bytes(), n_all);
    }
    n_all = layout.n_bytes();
  }));
  return kept;
}

Result<DrafterWeights> upload_drafter(const DrafterWeights& weights, WeightTaker& taker) {
  DrafterWeights kept;
  kept.config = weights.config;
  kept.identity = weights.identity;
  ROOST_TRY_DO(lay_out(taker, kept, [&](Layout& layout, DrafterWeights& to) {
    to.fc = weights.fc;
    to.hidden_norm = weights.hidden_norm;
    to.norm = weights.norm;
    to.layers = weights.layers;
    to.selector_hidden = weights.selector_hidden;
    to.predecessor = weights.predecessor;
    to.successor = weights.successor;
    layout.place(to.fc, to.hidden_norm, to.norm);
    for (DrafterLayerWeights& layer : to.layers) place(layer, layout);
    layout.place(to.selector_hidden);
    layout.place_table(to.predecessor);
    layout.place_table(to.successor);
  }));
  return kept;
}

}  // namespace roost
