// A drafter's weights, layer by layer.
#include "weights/drafter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "weights/modules.h"

namespace roost {

namespace {

class Loader {
 public:
  Loader(ModuleReader& reader, const DrafterConfig& config) : reader_(reader), c_(config) {}

  Result<void> load(DrafterWeights& weights);

 private:
  Result<DrafterLayerWeights> layer(int64_t layer_idx);
  Result<DraftConvWeights> conv(const std::string& path);

  ModuleReader& reader_;
  const DrafterConfig& c_;
};

Result<DraftConvWeights> Loader::conv(const std::string& path) {
  DraftConvWeights w;
  ROOST_TRY(w.base, reader_.numbers(path + "base_kernel", {2, c_.conv_taps, c_.hidden}));
  ROOST_TRY(w.dynamic,
            reader_.matrix(path + "kernel_projection", c_.conv_coefficients(), c_.hidden));
  return w;
}

Result<DrafterLayerWeights> Loader::layer(int64_t layer_idx) {
  const std::string path = "layers." + std::to_string(layer_idx) + ".";
  const std::string attention = path + "self_attn.", mlp = path + "mlp.";
  const int64_t q_width = c_.n_heads * c_.head_dim, kv_width = c_.n_kv_heads * c_.head_dim;
  DrafterLayerWeights w;
  ROOST_TRY(w.input_norm, reader_.vector(path + "input_layernorm.weight", c_.hidden, 0));
  ROOST_TRY(w.post_norm, reader_.vector(path + "post_attention_layernorm.weight", c_.hidden, 0));
  ROOST_TRY(w.q, reader_.matrix(attention + "q_proj", q_width, c_.hidden));
  ROOST_TRY(w.k, reader_.matrix(attention + "k_proj", kv_width, c_.hidden));
  ROOST_TRY(w.v, reader_.matrix(attention + "v_proj", kv_width, c_.hidden));
  ROOST_TRY(w.o, reader_.matrix(attention + "o_proj", c_.hidden, q_width));
  ROOST_TRY(w.q_norm, reader_.vector(attention + "q_norm.weight", c_.head_dim, 0));
  ROOST_TRY(w.k_norm, reader_.vector(attention + "k_norm.weight", c_.head_dim, 0));
  ROOST_TRY(w.mlp.gate, reader_.matrix(mlp + "gate_proj", c_.intermediate, c_.hidden));
  ROOST_TRY(w.mlp.up, reader_.matrix(mlp + "up_proj", c_.intermediate, c_.hidden));
  ROOST_TRY(w.mlp.down, reader_.matrix(mlp + "down_proj", c_.hidden, c_.intermediate));
  if (c_.version == 1) return w;
  ROOST_TRY(w.attention_conv, conv(path + "attention_conv."));
  ROOST_TRY(w.mlp_conv, conv(path + "mlp_conv."));
  return w;
}

Result<void> Loader::load(DrafterWeights& weights) {
  ROOST_TRY(weights.fc, reader_.matrix("fc", c_.hidden, c_.tap_width()));
  ROOST_TRY(weights.hidden_norm, reader_.vector("hidden_norm.weight", c_.hidden, 0));
  ROOST_TRY(weights.norm, reader_.vector("norm.weight", c_.hidden, 0));
  for (int64_t l = 0; l < c_.n_layers(); ++l) {
    ROOST_TRY(DrafterLayerWeights w, layer(l));
    weights.layers.push_back(std::move(w));
  }
  if (c_.version == 1) return {};
  const std::string selector = "candidate_selector.";
  ROOST_TRY(weights.selector_hidden,
            reader_.matrix(selector + "hidden_projection", c_.selector_rank, c_.hidden));
  ROOST_TRY(weights.predecessor,
            reader_.matrix(selector + "predecessor_codebook", c_.vocabulary, c_.selector_rank));
  ROOST_TRY(weights.successor,
            reader_.matrix(selector + "successor_codebook", c_.vocabulary, c_.selector_rank));
  return {};
}

// Affine codes of 4 bits as MLX makes them: the end of the group's range that is farther from zero
// is met exactly, and zero nearly.
void narrow(QuantMatrix& m, std::vector<Buffer>& owned) {
  constexpr int kGroup = 64;
  if (m.format != QuantMatrix::Format::kPlain || m.n_in % kGroup != 0) return;
  QuantMatrix out{.bits = 4, .group = kGroup, .n_out = m.n_out, .n_in = m.n_in};
  const auto n_groups = static_cast<size_t>(m.n_out * m.n_in / kGroup);
  Buffer codes(n_groups * kGroup / 2), scales(2 * n_groups), biases(2 * n_groups);
  double v[kGroup];
  for (size_t g = 0; g < n_groups; ++g) {
    const auto first = static_cast<int64_t>(g) * kGroup;
    for (int64_t i = 0; i < kGroup; ++i) v[i] = m.decode(first / m.n_in, first % m.n_in + i);
    const auto [lo, hi] = std::minmax_element(v, v + kGroup);
    const bool is_low = std::abs(*lo) > std::abs(*hi);
    const double edge = is_low ? *lo : *hi, step = std::max((*hi - *lo) / 15, 1e-7);
    const double n_steps = std::nearbyint(edge / (is_low ? step : -step));  // from zero to it
    const uint16_t scale = bf16_from_f64(n_steps != 0 ? edge / n_steps : (is_low ? step : -step));
    const uint16_t bias = bf16_from_f64(n_steps != 0 ? edge : 0);
    std::memcpy(scales.data() + 2 * g, &scale, sizeof scale);
    std::memcpy(biases.data() + 2 * g, &bias, sizeof bias);
    const auto code_of = [&](size_t i) {
      const double steps = (v[i] - double{f32_from_bf16(bias)}) / double{f32_from_bf16(scale)};
      return static_cast<uint32_t>(std::clamp(std::nearbyint(steps), 0.0, 15.0));
    };
    for (size_t i = 0; i < kGroup; i += 2)
      codes.data()[(g * kGroup + i) / 2] = static_cast<std::byte>(code_of(i) | code_of(i + 1) << 4);
  }
  out.codes = codes.data(), out.scales = scales.data(), out.biases = biases.data();
  m = out;
  for (Buffer* part : {&codes, &scales, &biases}) owned.push_back(std::move(*part));
}

void narrow(DrafterWeights& weights) {
  std::vector<QuantMatrix*> all = {&weights.fc, &weights.selector_hidden};
  for (DrafterLayerWeights& l : weights.layers)
    all.insert(all.end(), {&l.q, &l.k, &l.v, &l.o, &l.mlp.gate, &l.mlp.up, &l.mlp.down,
                           &l.attention_conv.dynamic, &l.mlp_conv.dynamic});
  const size_t n_mapped = weights.owned.size();
  for (QuantMatrix* matrix : all) {
    if (!matrix->exists()) continue;
    const size_t n_bytes = matrix->n_bytes(), n_parts = weights.owned.size();
    narrow(*matrix, weights.owned);
    if (weights.owned.size() > n_parts)
      weights.bytes_mapped -= std::min(weights.bytes_mapped, n_bytes);
  }
  for (size_t i = n_mapped; i < weights.owned.size(); ++i)
    weights.bytes_owned += weights.owned[i].n_bytes();
}

// A draft that is not a number would be drafted again and again: found here, once.
Result<void> check_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, entry] : checkpoint.tensors()) {
    const bool is_f32 = entry.dtype == DType::kF32;
    if (!is_f32 && entry.dtype != DType::kBF16 && entry.dtype != DType::kF16) continue;
    const int64_t n = entry.shape.n_elements();
    // All bits of the exponent are set in what is not finite.
    const uint16_t exponent = entry.dtype == DType::kF16 ? 0x7C00 : 0x7F80;
    for (int64_t i = 0; i < n; ++i) {
      uint16_t high;  // of f32: its upper half, as bf16
      std::memcpy(&high, entry.bytes.data() + (is_f32 ? 4 * i + 2 : 2 * i), sizeof(high));
      if ((high & exponent) != exponent) continue;
      return Error{Refusal::TensorValue,
                   name + ": element " + std::to_string(i) + " is not finite"};
    }
  }
  return {};
}

// Exports of some trainers carry the target's embedding and head. They are not used; one that is
// not the target's own would say that the drafter belongs elsewhere.
Result<void> take_copies(ModuleReader& reader, const ModelWeights& target) {
  for (const auto& [module, matrix] :
       {std::pair("embed_tokens", &target.embedding), std::pair("lm_head", &target.head)}) {
    const std::string path = std::string(module) + ".weight";
    const TensorEntry* entry = reader.find(path);
    if (entry == nullptr) continue;
    const bool is_same = matrix->format == QuantMatrix::Format::kPlain &&
                         entry->dtype == matrix->dtype &&
                         entry->bytes.size() == matrix->n_bytes() &&
                         std::equal(entry->bytes.begin(), entry->bytes.end(), matrix->codes);
    if (!is_same) return Error{Refusal::DrafterMismatch, path + ": not the target's own"};
    ROOST_TRY_DO(reader.matrix(module, matrix->n_out, matrix->n_in));
  }
  return {};
}

Hash128 identity_of(const std::string& config_text, const Checkpoint& checkpoint,
                    DrafterWidth width) {
  Hash128 hash = xxh3_128(std::as_bytes(std::span(config_text)), static_cast<uint64_t>(width));
  for (const auto& [name, entry] : checkpoint.tensors()) {
    const Hash128 parts[] = {hash, xxh3_128(std::as_bytes(std::span(name)), 0),
                             xxh3_128(entry.bytes, 0)};
    hash = xxh3_128(std::as_bytes(std::span(parts)), 0);
  }
  return hash;
}

}  // namespace

Result<DrafterWeights> load_drafter(const std::string& folder, const ModelWeights& target,
                                    DrafterWidth width) {
  ROOST_TRY(const std::string text, read_file(folder + "/config.json", limits::kConfigBytesMax));
  ROOST_TRY(const json::Value config, json::parse(text));
  DrafterWeights weights;
  ROOST_TRY(weights.config, parse_drafter_config(config));
  ROOST_TRY_DO(check_drafter_fits(weights.config, target.config));
  ROOST_TRY(Checkpoint opened, Checkpoint::open(folder));
  weights.checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  ROOST_TRY(
      ModuleReader reader,
      ModuleReader::create(*weights.checkpoint, weights.config.quantization, parse_drafter_name));
  ROOST_TRY_DO(Loader(reader, weights.config).load(weights));
  ROOST_TRY_DO(take_copies(reader, target));
  ROOST_TRY_DO(reader.left_out());
  ROOST_TRY_DO(check_finite(*weights.checkpoint));
  weights.bytes_mapped = reader.bytes_mapped();
  weights.bytes_owned = reader.owned().n_bytes();
  weights.owned = reader.owned().release();
  weights.identity = identity_of(text, *weights.checkpoint, width);
  if (width == DrafterWidth::kFourBits) narrow(weights);
  return weights;
}

}  // namespace roost
