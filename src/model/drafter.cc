#include "model/drafter.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace roost {

// What the configuration lets through, the op takes.
static_assert(kGroupHeadsMax == DraftAttention::kGroupHeadsMax &&
              kDraftHeadDimMax == DraftAttention::kDimMax);

namespace {

DraftOps& draft_ops_of(Ops& ops) {
  ROOST_CHECK(ops.draft_ops() != nullptr);
  return *ops.draft_ops();
}

}  // namespace

// ---- State --------------------------------------------------------------------------------------

size_t DrafterState::bytes_per_page(const DrafterConfig& c, DType dtype) {
  return static_cast<size_t>(2 * c.n_layers() * c.n_kv_heads * kPageTokens * c.head_dim) *
         size_of(dtype);
}

DrafterState DrafterState::create(const DrafterConfig& c, DType dtype, int32_t n_pages,
                                  Device& device) {
  DrafterState s;
  const Shape shape{n_pages, c.n_kv_heads, kPageTokens, c.head_dim};
  const auto take = [&] {
    s.memory.push_back(device.take(static_cast<size_t>(shape.n_elements()) * size_of(dtype)));
    return s.memory.back().tensor(dtype, shape);
  };
  for (int64_t l = 0; l < c.n_layers(); ++l) {
    const Tensor k = take(), v = take();
    s.pages.push_back({k, v});
  }
  return s;
}

// ---- Drafter ------------------------------------------------------------------------------------

void Drafter::widen(const DrafterConfig& c, int64_t rows_max, int64_t block_rows_max,
                    OpsLimits& limits) {
  limits.rows_max = std::max({limits.rows_max, rows_max, block_rows_max});
  limits.n_in_max =
      std::max({limits.n_in_max, c.tap_width(), c.hidden, c.n_heads * c.head_dim, c.intermediate});
  limits.draft_heads_per_kv = c.n_heads / c.n_kv_heads;
  limits.draft_head_dim = c.head_dim;
  limits.draft_rows_max = block_rows_max;
}

size_t Drafter::scratch_bytes(const DrafterConfig& c, DType activation, int64_t rows_max,
                              int64_t block_rows_max) {
  const int64_t a = static_cast<int64_t>(size_of(activation)), r = rows_max;
  const int64_t t = block_rows_max;
  const int64_t kv_width = c.n_kv_heads * c.head_dim;
  const int64_t absorb = r * (2 * c.hidden + 2 * kv_width) * a + r * c.head_dim * 4;
  const int64_t conv = c.version == 2 ? c.conv_coefficients() : 0;
  const int64_t block =
      t * (7 * c.hidden + 2 * c.n_heads * c.head_dim + 2 * kv_width + c.intermediate) * a +
      t * (c.head_dim + conv + c.vocabulary + c.selector_rank + 2 * c.selector_top_k + 3) * 4;
  constexpr int64_t kTensorsMax = 32;  // each may lose up to one alignment unit
  return static_cast<size_t>(std::max(absorb, block)) + kTensorsMax * Arena::kAlign;
}

Drafter::Drafter(const DrafterWeights& weights, const ModelWeights& target, Ops& ops,
                 int64_t rows_max, int64_t block_rows_max, int64_t n_tokens)
    : weights_(weights),
      config_(weights.config),
      target_(target),
      ops_(ops),
      draft_ops_(draft_ops_of(ops)),
      n_tokens_(n_tokens),
      device_(ops.device()),
      scratch_(
          device_.take(scratch_bytes(weights.config, ops.activation(), rows_max, block_rows_max))),
      rope_(static_cast<size_t>(std::max(rows_max, block_rows_max) * weights.config.head_dim)) {
  ROOST_CHECK(n_tokens >= config_.selector_top_k && n_tokens <= config_.vocabulary);
  for (int64_t i = 0; i < config_.head_dim / 2; ++i) {
    const double share = 2.0 * static_cast<double>(i) / static_cast<double>(config_.head_dim);
    frequencies_.push_back(std::pow(config_.rope_theta, -share));
  }
  positions_.reserve(static_cast<size_t>(std::max(rows_max, block_rows_max)));
  ids_.reserve(static_cast<size_t>(block_rows_max));
  draft_rows_.reserve(static_cast<size_t>(block_rows_max));
  const auto n_blocks = static_cast<size_t>(block_rows_max / 2);  // a block has two rows at least
  walks_.reserve(n_blocks);
  rows_.spans.reserve(n_blocks);
}

// cos and sin of every row's rotation, in float64 as the target's.
Tensor Drafter::rope_table(std::span<const int32_t> positions) {
  const auto n_rows = static_cast<int64_t>(positions.size());
  const auto n_pairs = static_cast<int64_t>(frequencies_.size());
  const Tensor rope = scratch_.tensor(DType::kF32, {n_rows, n_pairs, 2});
  float* out = rope_.data();
  for (const int32_t position : positions) {
    for (const double frequency : frequencies_) {
      *out++ = static_cast<float>(std::cos(position * frequency));
      *out++ = static_cast<float>(std::sin(position * frequency));
    }
  }
  device_.write(rope.data, rope_.data(), rope.n_bytes());
  return rope;
}

Tensor Drafter::list_of(std::span<const int32_t> values) {
  const Tensor list = scratch_.tensor(DType::kI32, {static_cast<int64_t>(values.size())});
  device_.write(list.data, values.data(), list.n_bytes());
  return list;
}

// Context rows take neither the layer's norm nor its convolution: the feature enters the key and
// value projections directly.
void Drafter::absorb(const Tensor& taps, std::span<const RowSpan> spans,
                     const DrafterState& state) {
  const auto body = [&] { absorb_rows(taps, spans, state); };
  if (tap_) return body();  // taps look at values between the ops
  ops_.run_step(taps.dim(0), std::cref(body));
}

void Drafter::absorb_rows(const Tensor& taps, std::span<const RowSpan> spans,
                          const DrafterState& state) {
  const Arena::Scope scope(scratch_);
  const DrafterConfig& c = config_;
  const DType act = ops_.activation();
  const int64_t n_rows = taps.dim(0), kv_width = c.n_kv_heads * c.head_dim;
  positions_.clear();
  for (const RowSpan& span : spans) {
    for (int32_t r = 0; r < span.n_rows; ++r) positions_.push_back(span.first_index + r);
  }
  ROOST_CHECK(static_cast<int64_t>(positions_.size()) == n_rows);
  const Tensor rope = rope_table(positions_);                       // [T, d/2, 2]
  const Tensor fused = scratch_.tensor(act, {n_rows, c.hidden});    // [T, h]
  const Tensor context = scratch_.tensor(act, {n_rows, c.hidden});  // [T, h]
  QuantLinear fuse{.x = taps};
  fuse.parts[0] = {&weights_.fc, fused};
  ops_.run(fuse);
  ops_.run(
      AddRmsNorm{.x = fused, .weight = weights_.hidden_norm, .out = context, .eps = c.norm_eps});
  tap("context", context);
  for (size_t l = 0; l < weights_.layers.size(); ++l) {
    const Arena::Scope layer_scope(scratch_);
    const DrafterLayerWeights& w = weights_.layers[l];
    const Tensor k = scratch_.tensor(act, {n_rows, kv_width});  // [T, nkv·d]
    const Tensor v = scratch_.tensor(act, {n_rows, kv_width});  // [T, nkv·d]
    QuantLinear projection{.x = context, .n_parts = 2};
    projection.parts[0] = {&w.k, k};
    projection.parts[1] = {&w.v, v};
    ops_.run(projection);
    ops_.run(QkNormRopeAppend{.k = k,
                              .v = v,
                              .k_weight = w.k_norm,
                              .rope = rope,
                              .k_pages = state.pages[l].k,
                              .v_pages = state.pages[l].v,
                              .spans = spans,
                              .eps = c.norm_eps});
  }
}

void Drafter::arrange(std::span<const DraftBlock> blocks) {
  rows_.spans.clear(), walks_.clear(), positions_.clear(), ids_.clear(), draft_rows_.clear();
  int32_t n_rows = 0, n_drafts = 0;
  for (const DraftBlock& block : blocks) {
    ROOST_CHECK(block.n_rows >= 2 && block.n_rows <= config_.block_rows_max);
    rows_.spans.push_back({.first_row = n_rows,
                           .n_rows = block.n_rows,
                           .position = block.position,
                           .context_begin = block.context_begin,
                           .page_table = block.page_table});
    walks_.push_back({.first_row = n_drafts,
                      .n_rows = block.n_rows - 1,
                      .anchor = block.anchor,
                      .params = block.params});
    walks_.back().params.position = int64_t{block.position} + 1;
    for (int32_t r = 0; r < block.n_rows; ++r) {
      positions_.push_back(block.position + r);
      ids_.push_back(r == 0 ? block.anchor : config_.mask_token);
      if (r > 0) draft_rows_.push_back(n_rows + r);
    }
    n_rows += block.n_rows;
    n_drafts += block.n_rows - 1;
  }
  rows_.ids = list_of(ids_);
  rows_.drafts = list_of(draft_rows_);
  rows_.rope = rope_table(positions_);
}

void Drafter::draft(std::span<const DraftBlock> blocks, const DrafterState& state,
                    std::span<int32_t> tokens) {
  const Arena::Scope scope(scratch_);
  const Tensor drafted = scratch_.tensor(DType::kI32, {static_cast<int64_t>(tokens.size())});
  int64_t n_rows = 0;
  for (const DraftBlock& block : blocks) n_rows += block.n_rows;
  const auto body = [&] { run_layers(blocks, state, drafted); };
  if (tap_) {
    body();
  } else {
    ops_.run_step(n_rows, std::cref(body));
  }
  device_.read(tokens.data(), drafted.data, drafted.n_bytes());
}

void Drafter::run_layers(std::span<const DraftBlock> blocks, const DrafterState& state,
                         const Tensor& tokens) {
  const Arena::Scope scope(scratch_);
  const DrafterConfig& c = config_;
  const DType act = ops_.activation();
  arrange(blocks);
  const int64_t n_rows = rows_.ids.dim(0);
  const auto take = [&] { return scratch_.tensor(act, {n_rows, c.hidden}); };  // [T, h]
  const Tensor x = take();  // the residual stream
  Buffers b{.normed = take(), .mixed = take(), .out = take(), .convolved = take()};
  if (c.version == 2)
    b.dynamic = scratch_.tensor(DType::kF32, {n_rows, c.conv_coefficients()});  // [T, 2·Kc·G]

  ops_.run(Embed{.tokens = rows_.ids, .table = &target_.embedding, .out = x});
  Tensor pending;
  for (size_t l = 0; l < weights_.layers.size(); ++l) {
    const DrafterLayerWeights& w = weights_.layers[l];
    ops_.run(AddRmsNorm{
        .x = x, .add = pending, .weight = w.input_norm, .out = b.normed, .eps = c.norm_eps});
    pending = attention(w, c.layers[l], state.pages[l], b);
    ops_.run(AddRmsNorm{
        .x = x, .add = pending, .weight = w.post_norm, .out = b.normed, .eps = c.norm_eps});
    pending = mlp(w, b);
  }
  select(x, pending, tokens);
}

// Side 0 also makes the coefficients of both sides, from the sublayer's input as it is in front of
// the convolution.
Tensor Drafter::convolved(const DraftConvWeights& w, const Tensor& x, const Tensor& out, int side,
                          const Buffers& b) {
  if (config_.version == 1) return x;
  if (side == 0) {
    QuantLinear coefficients{.x = x};
    coefficients.parts[0] = {&w.dynamic, b.dynamic};
    ops_.run(coefficients);
  }
  draft_ops_.run(DraftConv{.x = x,
                           .dynamic = b.dynamic,
                           .base = w.base,
                           .out = out,
                           .group = config_.conv_group,
                           .side = side,
                           .spans = rows_.spans});
  return out;
}

Tensor Drafter::attention(const DrafterLayerWeights& w, const DrafterConfig::Layer& layer,
                          const DrafterState::Pages& pages, const Buffers& b) {
  const Arena::Scope scope(scratch_);
  const DrafterConfig& c = config_;
  const DType act = ops_.activation();
  const int64_t n_rows = b.normed.dim(0), kv_width = c.n_kv_heads * c.head_dim;
  const Tensor input = convolved(w.attention_conv, b.normed, b.mixed, 0, b);
  const Tensor q = scratch_.tensor(act, {n_rows, c.n_heads * c.head_dim});  // [T, nq·d]
  const Tensor o = scratch_.tensor(act, {n_rows, c.n_heads * c.head_dim});  // [T, nq·d]
  const Tensor k = scratch_.tensor(act, {n_rows, kv_width});                // [T, nkv·d]
  const Tensor v = scratch_.tensor(act, {n_rows, kv_width});                // [T, nkv·d]
  QuantLinear in_projection{.x = input, .n_parts = 3};
  in_projection.parts = {LinearPart{&w.q, q}, {&w.k, k}, {&w.v, v}, {}};
  ops_.run(in_projection);
  draft_ops_.run(
      DraftAttention{.q = q,
                     .k = k,
                     .v = v,
                     .q_weight = w.q_norm,
                     .k_weight = w.k_norm,
                     .rope = rows_.rope,
                     .k_pages = pages.k,
                     .v_pages = pages.v,
                     .out = o,
                     .spans = rows_.spans,
                     .window = layer.window,
                     .is_causal = layer.is_causal,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
                     .eps = c.norm_eps});
  QuantLinear out_projection{.x = o};
  out_projection.parts[0] = {&w.o, b.out};
  ops_.run(out_projection);
  return convolved(w.attention_conv, b.out, b.convolved, 1, b);
}

Tensor Drafter::mlp(const DrafterLayerWeights& w, const Buffers& b) {
  const Arena::Scope scope(scratch_);
  const int64_t n_rows = b.normed.dim(0);
  const Tensor input = convolved(w.mlp_conv, b.normed, b.mixed, 0, b);
  const Tensor hidden = scratch_.tensor(ops_.activation(), {n_rows, config_.intermediate});
  QuantLinear gate_up{.x = input, .n_parts = 2, .epilogue = Epilogue::kSwiGlu};
  gate_up.parts[0] = {&w.mlp.gate, hidden};
  gate_up.parts[1] = {&w.mlp.up, {}};
  ops_.run(gate_up);
  QuantLinear down{.x = hidden};
  down.parts[0] = {&w.mlp.down, b.out};
  ops_.run(down);
  return convolved(w.mlp_conv, b.out, b.convolved, 1, b);
}

void Drafter::select(const Tensor& x, const Tensor& add, const Tensor& tokens) {
  const DrafterConfig& c = config_;
  const int64_t n_drafts = rows_.drafts.dim(0);
  ROOST_CHECK(n_drafts > 0 && tokens.dim(0) == n_drafts);
  const Tensor y = scratch_.tensor(ops_.activation(), {n_drafts, c.hidden});  // [N, h]
  ops_.run(AddRmsNorm{.x = x,
                      .add = add,
                      .weight = weights_.norm,
                      .rows = rows_.drafts,
                      .out = y,
                      .eps = c.norm_eps});
  tap("hidden", y);

  const bool has_pairs = c.selector_rank > 0;
  DraftSelect choice{.logits = scratch_.tensor(DType::kF32, {n_drafts, c.vocabulary}),  // [N, V]
                     .walks = walks_,
                     .n_tokens = n_tokens_,
                     .multiplier = c.output_multiplier,
                     .softcap = c.softcap,
                     .ids = scratch_.tensor(DType::kI32, {n_drafts, c.selector_top_k}),
                     .scores = scratch_.tensor(DType::kF32, {n_drafts, c.selector_top_k}),
                     .tokens = tokens};
  QuantLinear head{.x = y, .n_parts = has_pairs ? 2 : 1};
  head.parts[0] = {&target_.head, choice.logits};
  if (has_pairs) {
    choice.hidden = scratch_.tensor(DType::kF32, {n_drafts, c.selector_rank});  // [N, R]
    choice.predecessor = &weights_.predecessor;
    choice.successor = &weights_.successor;
    head.parts[1] = {&weights_.selector_hidden, choice.hidden};
  }
  ops_.run(head);
  tap("logits", choice.logits);
  draft_ops_.run(choice);
  tap("ids", choice.ids);
  tap("scores", choice.scores);
}

}  // namespace roost
