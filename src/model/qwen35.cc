#include "model/qwen35.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

namespace roost {

// What the configuration lets through, the ops take.
static_assert(kHeadDimMax == Attention::kHeadDimMax && kKeyDimMax == GatedDelta::kKeyDimMax &&
              kGroupHeadsMax == Attention::kGroupHeadsMax);

namespace {

// What the layer before left for the residual stream: a tensor, or its experts' outputs.
struct Pending {
  Tensor add;
  ExpertSum experts;
};

int64_t n_slots_of_experts(const ModelConfig& c) {
  return c.experts_per_token + (c.shared_expert_width > 0 ? 1 : 0);
}

}  // namespace

// ---- State --------------------------------------------------------------------------------------

size_t ModelState::bytes_per_page(const ModelConfig& c, DType dtype, KvFormat kv) {
  const auto n_heads = static_cast<size_t>(c.n_full_layers() * 2 * c.n_kv_heads * kPageTokens);
  const auto dim = static_cast<size_t>(c.head_dim);
  return n_heads * (kv == KvFormat::kInt8 ? dim + sizeof(float) : dim * size_of(dtype));
}

size_t ModelState::bytes_per_slot(const ModelConfig& c, DType dtype, int32_t replay_rows_max) {
  const int64_t state = c.n_value_heads * c.key_dim * c.value_dim;
  const int64_t raw_rows = (3 + replay_rows_max) * c.conv_channels();
  const int64_t gates = replay_rows_max * 2 * c.n_value_heads;
  return static_cast<size_t>(c.n_delta_layers()) * (static_cast<size_t>((state + gates) * 4) +
                                                    static_cast<size_t>(raw_rows) * size_of(dtype));
}

ModelState ModelState::create(const ModelConfig& c, DType dtype, int32_t n_pages, int32_t n_slots,
                              int32_t replay_rows_max, Device& device, KvFormat kv) {
  ModelState s;
  s.device = &device;
  s.n_pages = n_pages;
  s.n_slots = n_slots;
  s.replay_rows_max = replay_rows_max;
  const auto take = [&](DType type, const Shape& shape) {
    s.memory.push_back(device.take(static_cast<size_t>(shape.n_elements()) * size_of(type)));
    return s.memory.back().tensor(type, shape);
  };
  for (int64_t l = 0; l < c.n_layers; ++l) {
    if (c.is_full_attention[static_cast<size_t>(l)]) {
      const Shape shape{n_pages, c.n_kv_heads, kPageTokens, c.head_dim};
      if (kv == KvFormat::kActivation) {
        s.pages.push_back({.k = take(dtype, shape), .v = take(dtype, shape)});
        continue;
      }
      const Shape scales{n_pages, c.n_kv_heads, kPageTokens};
      s.pages.push_back({.k = take(DType::kI8, shape),
                         .v = take(DType::kI8, {n_pages, c.n_kv_heads, c.head_dim, kPageTokens}),
                         .k_scales = take(DType::kF32, scales),
                         .v_scales = take(DType::kF32, scales)});
      continue;
    }
    Delta d;
    d.state = take(DType::kF32, {n_slots, c.n_value_heads, c.key_dim, c.value_dim});
    d.tail = take(dtype, {n_slots, 3, c.conv_channels()});
    if (replay_rows_max > 0) {
      d.store_qkv = take(dtype, {n_slots, replay_rows_max, c.conv_channels()});
      d.store_b = take(DType::kF32, {n_slots, replay_rows_max, c.n_value_heads});
      d.store_a = take(DType::kF32, {n_slots, replay_rows_max, c.n_value_heads});
    }
    s.delta.push_back(d);
  }
  return s;
}

void ModelState::reset_slot(int32_t slot) {
  for (const Delta& d : delta) {
    for (const Tensor& t : {d.state.at(slot), d.tail.at(slot)}) device->clear(t.data, t.n_bytes());
  }
}

// ---- Model --------------------------------------------------------------------------------------

OpsLimits Qwen35::ops_limits(const ModelConfig& c, int64_t rows_max) {
  OpsLimits limits;
  limits.rows_max = rows_max;
  limits.hidden = c.hidden;
  limits.n_in_max = std::max({c.hidden, c.n_heads * c.head_dim, c.value_width(), c.intermediate,
                              c.shared_expert_width, c.expert_width});
  limits.experts = c.n_experts;
  limits.experts_per_row = c.experts_per_token;
  limits.expert_width = std::max(c.expert_width, c.shared_expert_width);
  limits.attention_heads = c.n_heads;
  limits.kv_heads = c.n_kv_heads;
  limits.head_dim = c.head_dim;
  limits.value_heads = c.n_value_heads;
  limits.key_heads = c.n_key_heads;
  limits.key_dim = c.key_dim;
  limits.value_dim = c.value_dim;
  limits.context_max = c.context_max;
  limits.vocabulary = c.vocabulary;
  return limits;
}

size_t Qwen35::scratch_bytes(const ModelConfig& c, DType activation, int64_t rows_max,
                             int64_t packed_rows_max) {
  const int64_t t = rows_max, p = packed_rows_max, a = static_cast<int64_t>(size_of(activation));
  const int64_t stream = 4 * t * c.hidden * a + t * c.rotary_dims * 4 + 2 * t * 4;
  const int64_t delta = t * (c.conv_channels() + 2 * c.value_width()) * a +
                        t * 2 * c.n_value_heads * 4 + p * c.conv_channels() * a +
                        p * (c.n_key_heads + 2 * c.n_value_heads) * 4;
  const int64_t attention = t * (4 * c.n_heads + 2 * c.n_kv_heads) * c.head_dim * a;
  const int64_t mlp = c.is_moe() ? t * (c.n_experts + 2 + 2 * c.experts_per_token) * 4 +
                                       t * n_slots_of_experts(c) * c.hidden * a
                                 : t * (c.intermediate + c.hidden) * a;
  constexpr int64_t kTensorsMax = 40;  // each may lose up to one alignment unit
  return static_cast<size_t>(stream + std::max(delta, attention) + mlp) +
         kTensorsMax * Arena::kAlign;
}

Qwen35::Qwen35(const ModelWeights& weights, Ops& ops, int64_t rows_max, int64_t packed_rows_max)
    : weights_(weights),
      config_(weights.config),
      ops_(ops),
      device_(ops.device()),
      scratch_(
          device_.take(scratch_bytes(weights.config, ops.activation(), rows_max, packed_rows_max))),
      rope_(static_cast<size_t>(rows_max * config_.rotary_dims)) {
  const int64_t n_pairs = config_.rotary_dims / 2;
  for (int64_t i = 0; i < n_pairs; ++i) {
    frequencies_.push_back(
        std::pow(config_.rope_theta,
                 -2.0 * static_cast<double>(i) / static_cast<double>(config_.rotary_dims)));
    // Axes are interleaved over the frequencies: H and W take every third pair while their
    // sections last, T the rest.
    const int axis = static_cast<int>(i % 3);
    const bool is_taken = axis != 0 && i < 3 * config_.mrope_section[static_cast<size_t>(axis)];
    axis_.push_back(is_taken ? axis : 0);
  }
}

// cos and sin of every row's rotation, in float64 (an angle can be 262,143 rad), stored as f32.
Tensor Qwen35::rope_table(const Step& step) {
  const int64_t n_rows = static_cast<int64_t>(step.tokens.size()),
                n_pairs = config_.rotary_dims / 2;
  const Tensor rope = scratch_.tensor(DType::kF32, {n_rows, n_pairs, 2});
  float* out = rope_.data();
  for (int64_t t = 0; t < n_rows; ++t) {
    for (int64_t i = 0; i < n_pairs; ++i) {
      const auto f = static_cast<size_t>(i);
      const double angle = step.positions[static_cast<size_t>(3 * t + axis_[f])] * frequencies_[f];
      *out++ = static_cast<float>(std::cos(angle));
      *out++ = static_cast<float>(std::sin(angle));
    }
  }
  device_.write(rope.data, rope_.data(), rope.n_bytes());
  return rope;
}

Tensor Qwen35::list_of(std::span<const int32_t> values) {
  const Tensor list = scratch_.tensor(DType::kI32, {static_cast<int64_t>(values.size())});
  device_.write(list.data, values.data(), list.n_bytes());
  return list;
}

void Qwen35::forward(const Step& step, ModelState& state) {
  if (tap_) return run_layers(step, state);  // taps look at values between the ops
  const auto body = [this, &step, &state] { run_layers(step, state); };
  ops_.run_step(static_cast<int64_t>(step.tokens.size()), std::cref(body));
}

void Qwen35::replay(std::span<const DeltaSpan> spans, ModelState& state) {
  const Arena::Scope scope(scratch_);
  const DeltaRows none = take_delta_rows(1);  // no span has a row in it
  int delta_idx = 0;
  for (int64_t l = 0; l < config_.n_layers; ++l) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(l)];
    if (layer.is_full_attention) continue;
    recur(layer.delta, l, state.delta[static_cast<size_t>(delta_idx++)], none, spans);
  }
}

void Qwen35::run_layers(const Step& step, ModelState& state) {
  const Arena::Scope scope(scratch_);
  const int64_t n_rows = static_cast<int64_t>(step.tokens.size());
  const DType act = ops_.activation();
  const Tensor x = scratch_.tensor(act, {n_rows, config_.hidden});  // [T, h] the residual stream
  const Tensor normed = scratch_.tensor(act, {n_rows, config_.hidden});  // [T, h]
  const Tensor mixed = scratch_.tensor(act, {n_rows, config_.hidden});   // [T, h]
  const Tensor rope = rope_table(step);                                  // [T, R/2, 2]

  ops_.run(Embed{.tokens = list_of(step.tokens), .table = &weights_.embedding, .out = x});
  const MlpTensors mlp_tensors = take_mlp_tensors(n_rows);
  Pending pending;
  int attention_idx = 0, delta_idx = 0;
  for (int64_t l = 0; l < config_.n_layers; ++l) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(l)];
    AddRmsNorm input_norm{.x = x,
                          .add = pending.add,
                          .experts = pending.experts,
                          .weight = layer.input_norm,
                          .out = normed,
                          .eps = config_.norm_eps};
    tap_stream(step, l, input_norm);
    ops_.run(input_norm);
    tap("residual", l, x);
    if (layer.is_full_attention) {
      full_attention(layer.attention, state.pages[static_cast<size_t>(attention_idx++)], normed,
                     mixed, step, rope);
    } else {
      gated_delta_net(layer.delta, l, state.delta[static_cast<size_t>(delta_idx++)], normed, mixed,
                      step);
    }
    ops_.run(AddRmsNorm{
        .x = x, .add = mixed, .weight = layer.post_norm, .out = normed, .eps = config_.norm_eps});
    pending = {};
    if (config_.is_moe()) {
      pending.experts = experts(layer.moe, l, mlp_tensors, normed);
    } else {
      pending.add = dense_mlp(layer.mlp, mlp_tensors, normed);
    }
  }
  // A prompt chunk whose rows nobody draws from ends here, when nobody looks at them either.
  if (step.logit_rows.empty() && !tap_ && step.tap_layers.empty()) return;
  head(x, pending.add, pending.experts, step);
}

// In front of layer `layer` lies what the one before left.
void Qwen35::tap_stream(const Step& step, int64_t layer, AddRmsNorm& op) const {
  for (size_t i = 0; i < step.tap_layers.size(); ++i) {
    if (step.tap_layers[i] + 1 != layer) continue;
    op.tap = step.taps;
    op.tap_first = static_cast<int64_t>(i) * config_.hidden;
  }
}

void Qwen35::head(const Tensor& x, const Tensor& add, const ExpertSum& experts, const Step& step) {
  const Arena::Scope scope(scratch_);
  const int64_t n_logits = static_cast<int64_t>(step.logit_rows.size());
  const bool has_logits = n_logits > 0;
  AddRmsNorm norm{.x = x,
                  .add = add,
                  .experts = experts,
                  .weight = weights_.final_norm,
                  .eps = config_.norm_eps};
  if (has_logits) {
    norm.rows = list_of(step.logit_rows);
    norm.out = scratch_.tensor(ops_.activation(), {n_logits, config_.hidden});  // [N, h]
  }
  tap_stream(step, config_.n_layers, norm);
  ops_.run(norm);
  tap("residual", config_.n_layers, x);
  if (!has_logits) return;
  tap("final_norm", 0, norm.out);
  QuantLinear product{.x = norm.out};
  product.parts[0] = {&weights_.head, step.logits};
  ops_.run(product);
}

void Qwen35::gated_delta_net(const GatedDeltaWeights& w, int64_t layer, ModelState::Delta& state,
                             const Tensor& normed, const Tensor& out, const Step& step) {
  const Arena::Scope scope(scratch_);
  const DeltaRows rows = take_delta_rows(normed.dim(0));
  QuantLinear in_projection{.x = normed, .n_parts = 4};
  in_projection.parts = {
      LinearPart{&w.qkv, rows.qkv}, {&w.z, rows.z}, {&w.b, rows.b}, {&w.a, rows.a}};
  ops_.run(in_projection);
  tap("conv_input", layer, rows.qkv);
  recur(w, layer, state, rows, step.delta_rows);
  QuantLinear out_projection{.x = rows.out};
  out_projection.parts[0] = {&w.out, out, ProductTree::kQuarters};
  ops_.run(out_projection);
}

Qwen35::DeltaRows Qwen35::take_delta_rows(int64_t n_rows) {
  const ModelConfig& c = config_;
  const DType act = ops_.activation();
  return {.qkv = scratch_.tensor(act, {n_rows, c.conv_channels()}),      // [T, C]
          .z = scratch_.tensor(act, {n_rows, c.value_width()}),          // [T, Hv·Dv]
          .b = scratch_.tensor(DType::kF32, {n_rows, c.n_value_heads}),  // [T, Hv]
          .a = scratch_.tensor(DType::kF32, {n_rows, c.n_value_heads}),  // [T, Hv]
          .out = scratch_.tensor(act, {n_rows, c.value_width()})};       // [T, Hv·Dv]
}

void Qwen35::recur(const GatedDeltaWeights& w, int64_t layer, ModelState::Delta& state,
                   const DeltaRows& rows, std::span<const DeltaSpan> spans) {
  const Arena::Scope scope(scratch_);
  const ModelConfig& c = config_;
  const DType act = ops_.activation();
  int64_t n_packed = 0;
  for (const DeltaSpan& span : spans) n_packed += span.n_packed();
  const Tensor q = scratch_.tensor(act, {n_packed, c.n_key_heads, c.key_dim});      // [P, Hk, Dk]
  const Tensor k = scratch_.tensor(act, {n_packed, c.n_key_heads, c.key_dim});      // [P, Hk, Dk]
  const Tensor v = scratch_.tensor(act, {n_packed, c.n_value_heads, c.value_dim});  // [P, Hv, Dv]
  const Tensor kq = scratch_.tensor(DType::kF32, {n_packed, c.n_key_heads});        // [P, Hk]
  const Tensor beta = scratch_.tensor(DType::kF32, {n_packed, c.n_value_heads});    // [P, Hv]
  const Tensor decay = scratch_.tensor(DType::kF32, {n_packed, c.n_value_heads});   // [P, Hv]
  ops_.run(ConvGates{.qkv = rows.qkv,
                     .b = rows.b,
                     .a = rows.a,
                     .conv_weight = w.conv,
                     .a_log = w.a_log,
                     .dt_bias = w.dt_bias,
                     .tail = state.tail,
                     .store_qkv = state.store_qkv,
                     .store_b = state.store_b,
                     .store_a = state.store_a,
                     .spans = spans,
                     .q = q,
                     .k = k,
                     .v = v,
                     .kq = kq,
                     .beta = beta,
                     .decay = decay});
  tap("conv_q", layer, q);
  tap("conv_k", layer, k);
  tap("conv_v", layer, v);
  ops_.run(GatedDelta{.q = q,
                      .k = k,
                      .v = v,
                      .kq = kq,
                      .beta = beta,
                      .decay = decay,
                      .z = rows.z,
                      .norm_weight = w.norm,
                      .state = state.state,
                      .out = rows.out,
                      .spans = spans,
                      .eps = c.norm_eps});
}

void Qwen35::full_attention(const FullAttentionWeights& w, ModelState::Pages& pages,
                            const Tensor& normed, const Tensor& out, const Step& step,
                            const Tensor& rope) {
  const Arena::Scope scope(scratch_);
  const ModelConfig& c = config_;
  const DType act = ops_.activation();
  const int64_t n_rows = normed.dim(0);

  const Tensor q_gate = scratch_.tensor(act, {n_rows, c.n_heads, 2 * c.head_dim});  // [T, nh, 2·D]
  const Tensor k = scratch_.tensor(act, {n_rows, c.n_kv_heads * c.head_dim});       // [T, nkv·D]
  const Tensor v = scratch_.tensor(act, {n_rows, c.n_kv_heads * c.head_dim});       // [T, nkv·D]
  QuantLinear in_projection{.x = normed, .n_parts = 3};
  in_projection.parts = {LinearPart{&w.q, q_gate.reshaped({n_rows, c.n_heads * 2 * c.head_dim})},
                         {&w.k, k},
                         {&w.v, v},
                         {}};
  ops_.run(in_projection);

  const Tensor q = scratch_.tensor(act, {n_rows, c.n_heads, c.head_dim});  // [T, nh, D]
  ops_.run(QkNormRopeAppend{.q_gate = q_gate,
                            .k = k,
                            .v = v,
                            .q_weight = w.q_norm,
                            .k_weight = w.k_norm,
                            .rope = rope,
                            .q = q,
                            .k_pages = pages.k,
                            .v_pages = pages.v,
                            .k_scales = pages.k_scales,
                            .v_scales = pages.v_scales,
                            .spans = step.rows,
                            .eps = c.norm_eps});

  const Tensor o = scratch_.tensor(act, {n_rows, c.n_heads * c.head_dim});  // [T, nh·D]
  ops_.run(
      Attention{.q = q,
                .q_gate = q_gate,
                .k_pages = pages.k,
                .v_pages = pages.v,
                .k_scales = pages.k_scales,
                .v_scales = pages.v_scales,
                .out = o,
                .spans = step.rows,
                .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))});
  QuantLinear out_projection{.x = o};
  out_projection.parts[0] = {&w.o, out, ProductTree::kQuarters};
  ops_.run(out_projection);
}

Qwen35::MlpTensors Qwen35::take_mlp_tensors(int64_t n_rows) {
  const ModelConfig& c = config_;
  MlpTensors m;
  if (!c.is_moe()) {
    m.hidden = scratch_.tensor(ops_.activation(), {n_rows, c.intermediate});  // [T, m]
    m.out = scratch_.tensor(ops_.activation(), {n_rows, c.hidden});           // [T, h]
    return m;
  }
  m.router_logits = scratch_.tensor(DType::kF32, {n_rows, c.n_experts});  // [T, E]
  m.sum.n_experts = static_cast<int>(c.n_experts);
  m.sum.ids = scratch_.tensor(DType::kI32, {n_rows, c.experts_per_token});      // [T, K]
  m.sum.weights = scratch_.tensor(DType::kF32, {n_rows, c.experts_per_token});  // [T, K]
  m.sum.y =
      scratch_.tensor(ops_.activation(), {n_rows, n_slots_of_experts(c), c.hidden});  // [T, K+1, h]
  if (c.shared_expert_width > 0) {
    m.shared_logit = scratch_.tensor(DType::kF32, {n_rows, 1});  // [T, 1]
    m.sum.shared_gate = scratch_.tensor(DType::kF32, {n_rows});  // [T]
  }
  return m;
}

ExpertSum Qwen35::experts(const MoeWeights& w, int64_t layer, const MlpTensors& m,
                          const Tensor& normed) {
  const bool has_shared = m.shared_logit.exists();
  QuantLinear router{.x = normed, .n_parts = has_shared ? 2 : 1};
  router.parts[0] = {&w.router, m.router_logits, ProductTree::kQuarters};
  if (has_shared) router.parts[1] = {&w.shared_gate, m.shared_logit, ProductTree::kQuarters};
  ops_.run(router);
  ops_.run(Route{.logits = m.router_logits,
                 .shared_logit = m.shared_logit,
                 .ids = m.sum.ids,
                 .weights = m.sum.weights,
                 .shared_gate = m.sum.shared_gate,
                 .normalize = config_.normalize_experts});
  tap("expert_ids", layer, m.sum.ids);
  tap("expert_weights", layer, m.sum.weights);
  ops_.run(MoeExperts{.x = normed,
                      .ids = m.sum.ids,
                      .experts = w.experts,
                      .shared = has_shared ? &w.shared : nullptr,
                      .y = m.sum.y});
  return m.sum;
}

Tensor Qwen35::dense_mlp(const GatedMlp& w, const MlpTensors& m, const Tensor& normed) {
  QuantLinear gate_up{.x = normed, .n_parts = 2, .epilogue = Epilogue::kSwiGlu};
  gate_up.parts[0] = {&w.gate, m.hidden};
  gate_up.parts[1] = {&w.up, {}};
  ops_.run(gate_up);
  QuantLinear down{.x = m.hidden};
  down.parts[0] = {&w.down, m.out, ProductTree::kQuarters};
  ops_.run(down);
  return m.out;
}

}  // namespace roost
