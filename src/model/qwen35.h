// The Qwen3.5 text model: embedding, layers, norm, head, written once over Ops.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/arena.h"
#include "device/device.h"
#include "ops/ops.h"
#include "weights/weights.h"

namespace roost {

// What K/V pages hold: values of the activation type, or 8-bit codes with a scale for each token
// and head (ops/kv_codes.h), which is other arithmetic.
enum class KvFormat : uint8_t { kActivation, kInt8 };

// K/V pages and recurrent state of all layers, as pools over memory taken at start.
struct ModelState {
  struct Pages {
    Tensor k, v;                // [pages, nkv, 64, D]; of codes v is [pages, nkv, D, 64]
    Tensor k_scales, v_scales;  // [pages, nkv, 64] f32, of codes only

    // Calls work with each tensor that there is.
    template <class Work>
    void for_each(const Work& work) const {
      for (const Tensor* part : {&k, &v, &k_scales, &v_scales})
        if (part->exists()) work(*part);
    }
  };
  struct Delta {
    Tensor state;                        // [slots, Hv, Dk, Dv] f32
    Tensor tail;                         // [slots, 3, C]
    Tensor store_qkv, store_b, store_a;  // [slots, R, ...]; absent when R is 0
  };
  std::vector<Pages> pages;  // one per full-attention layer, in layer order
  std::vector<Delta> delta;  // one per gated-delta layer, in layer order
  int32_t n_pages = 0, n_slots = 0, replay_rows_max = 0;
  std::vector<Buffer> memory;
  Device* device = nullptr;  // whose memory it is

  static size_t bytes_per_page(const ModelConfig& config, DType dtype,
                               KvFormat kv = KvFormat::kActivation);
  static size_t bytes_per_slot(const ModelConfig& config, DType dtype, int32_t replay_rows_max);
  static ModelState create(const ModelConfig& config, DType dtype, int32_t n_pages, int32_t n_slots,
                           int32_t replay_rows_max, Device& device = host_device(),
                           KvFormat kv = KvFormat::kActivation);
  // Zeros the recurrent state of a slot: the start of a sequence.
  void reset_slot(int32_t slot);
};

// One forward call over rows of any number of sequences. The lists lie in memory of the host, the
// logits and taps in that of the backend's device.
struct Step {
  std::span<const int32_t> tokens;        // [T]
  std::span<const int32_t> positions;     // [T][3]: T, H, W axes; equal for text
  std::span<const RowSpan> rows;          // covers all T rows, in order
  std::span<const DeltaSpan> delta_rows;  // the same sequences
  std::span<const int32_t> logit_rows;    // rows whose logits are wanted, any order
  Tensor logits;                          // out: [logit_rows.size(), V] f32
  // For a drafter: the residual stream behind each of the layers tap_layers, side by side in their
  // order.
  std::span<const int64_t> tap_layers;
  Tensor taps;  // out: [T, tap_layers.size() * h] activation; absent without layers
};

class Qwen35 {
 public:
  // weights and ops must outlive the model. rows_max: rows of a step.
  Qwen35(const ModelWeights& weights, Ops& ops, int64_t rows_max, int64_t packed_rows_max);

  void forward(const Step& step, ModelState& state);

  // The stored states of spans without new rows move behind rows of their row stores (DeltaSpan).
  void replay(std::span<const DeltaSpan> spans, ModelState& state);

  // Called with a place, its layer and the tensor behind it, for tests. Places:
  // "residual" (layer l: the stream before layer l; l = L: after the last), "conv_input", "conv_q",
  // "conv_k", "conv_v", "expert_ids", "expert_weights", "final_norm".
  using Tap = std::function<void(std::string_view place, int64_t layer, const Tensor& tensor)>;
  void set_tap(Tap tap) { tap_ = std::move(tap); }

  static OpsLimits ops_limits(const ModelConfig& config, int64_t rows_max);
  static size_t scratch_bytes(const ModelConfig& config, DType activation, int64_t rows_max,
                              int64_t packed_rows_max);

 private:
  // A layer's MLP leaves its output here until the next norm takes it into the stream.
  struct MlpTensors {
    Tensor hidden, out;                  // dense
    Tensor router_logits, shared_logit;  // routed
    ExpertSum sum;
  };
  MlpTensors take_mlp_tensors(int64_t n_rows);
  void run_layers(const Step& step, ModelState& state);
  Tensor rope_table(const Step& step);
  Tensor list_of(std::span<const int32_t> values);  // [n] i32, where the ops read it
  void gated_delta_net(const GatedDeltaWeights& w, int64_t layer, ModelState::Delta& state,
                       const Tensor& normed, const Tensor& out, const Step& step);
  // Of the new rows of a step, in a gated-delta layer.
  struct DeltaRows {
    Tensor qkv, z, b, a, out;
  };
  DeltaRows take_delta_rows(int64_t n_rows);
  void recur(const GatedDeltaWeights& w, int64_t layer, ModelState::Delta& state,
             const DeltaRows& rows, std::span<const DeltaSpan> spans);
  void full_attention(const FullAttentionWeights& w, ModelState::Pages& pages, const Tensor& normed,
                      const Tensor& out, const Step& step, const Tensor& rope);
  ExpertSum experts(const MoeWeights& w, int64_t layer, const MlpTensors& m, const Tensor& normed);
  Tensor dense_mlp(const GatedMlp& w, const MlpTensors& m, const Tensor& normed);
  void tap_stream(const Step& step, int64_t layer, AddRmsNorm& op) const;
  void head(const Tensor& x, const Tensor& add, const ExpertSum& experts, const Step& step);
  void tap(std::string_view place, int64_t layer, const Tensor& tensor) const {
    if (tap_) tap_(place, layer, tensor);
  }

  const ModelWeights& weights_;
  const ModelConfig& config_;
  Ops& ops_;
  Device& device_;  // of the scratch, the state and the logits
  Arena scratch_;
  std::vector<float> rope_;          // [rows_max, R/2, 2] a step's rotations, on the host
  std::vector<double> frequencies_;  // [R/2] ω_i
  std::vector<int> axis_;            // [R/2] which of T, H, W drives frequency i
  Tap tap_;
};

}  // namespace roost
