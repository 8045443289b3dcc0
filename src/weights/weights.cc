// The text model's weights, layer by layer.
#include "weights/weights.h"

#include "weights/modules.h"
#include "weights/names.h"

namespace roost {

namespace {

class Loader {
 public:
  Loader(ModuleReader& reader, const ModelConfig& config) : reader_(reader), c_(config) {}

  Result<void> load(ModelWeights& weights);

 private:
  Result<LayerWeights> layer(int64_t layer_idx);
  Result<FullAttentionWeights> full_attention(const std::string& path);
  Result<GatedDeltaWeights> gated_delta(const std::string& path);
  Result<MoeWeights> moe(const std::string& path);
  Result<std::vector<GatedMlp>> experts(const std::string& path);
  Result<std::vector<GatedMlp>> experts_one_by_one(const std::string& path);
  Result<GatedMlp> mlp(const std::string& path, int64_t width);

  ModuleReader& reader_;
  const ModelConfig& c_;
  bool is_raw_ = false;
  float norm_add_ = 0;  // 1 in raw files, whose norms are zero-centred
};

Result<GatedMlp> Loader::mlp(const std::string& path, int64_t width) {
  GatedMlp m;
  ROOST_TRY(m.gate, reader_.matrix(path + "gate_proj", width, c_.hidden));
  ROOST_TRY(m.up, reader_.matrix(path + "up_proj", width, c_.hidden));
  ROOST_TRY(m.down, reader_.matrix(path + "down_proj", c_.hidden, width));
  return m;
}

Result<FullAttentionWeights> Loader::full_attention(const std::string& path) {
  FullAttentionWeights w;
  const int64_t q_width = c_.n_heads * c_.head_dim, kv_width = c_.n_kv_heads * c_.head_dim;
  ROOST_TRY(w.q, reader_.matrix(path + "q_proj", 2 * q_width, c_.hidden));
  ROOST_TRY(w.k, reader_.matrix(path + "k_proj", kv_width, c_.hidden));
  ROOST_TRY(w.v, reader_.matrix(path + "v_proj", kv_width, c_.hidden));
  ROOST_TRY(w.o, reader_.matrix(path + "o_proj", c_.hidden, q_width));
  ROOST_TRY(w.q_norm, reader_.vector(path + "q_norm.weight", c_.head_dim, norm_add_));
  ROOST_TRY(w.k_norm, reader_.vector(path + "k_norm.weight", c_.head_dim, norm_add_));
  return w;
}

Result<GatedDeltaWeights> Loader::gated_delta(const std::string& path) {
  GatedDeltaWeights w;
  ROOST_TRY(w.qkv, reader_.matrix(path + "in_proj_qkv", c_.conv_channels(), c_.hidden));
  ROOST_TRY(w.z, reader_.matrix(path + "in_proj_z", c_.value_width(), c_.hidden));
  ROOST_TRY(w.b, reader_.matrix(path + "in_proj_b", c_.n_value_heads, c_.hidden));
  ROOST_TRY(w.a, reader_.matrix(path + "in_proj_a", c_.n_value_heads, c_.hidden));
  ROOST_TRY(w.out, reader_.matrix(path + "out_proj", c_.hidden, c_.value_width()));
  const std::string conv = path + "conv1d.weight";
  ROOST_TRY(const bool is_raw, reader_.is_raw(conv));
  if (is_raw != is_raw_) {
    return Error{Refusal::TensorShape,
                 reader_.find(conv)->name + ": have " + to_string(reader_.find(conv)->shape) +
                     ", but the first convolution has the other order of axes"};
  }
  ROOST_TRY(w.conv, reader_.conv_taps(conv, c_.conv_channels()));
  ROOST_TRY(w.a_log, reader_.vector(path + "A_log", c_.n_value_heads, 0));
  ROOST_TRY(w.dt_bias, reader_.vector(path + "dt_bias", c_.n_value_heads, 0));
  ROOST_TRY(w.norm, reader_.vector(path + "norm.weight", c_.value_dim, 0));
  return w;
}

bool is_same_format(const QuantMatrix& a, const QuantMatrix& b) {
  return a.format == b.format && a.dtype == b.dtype &&
         (a.format == QuantMatrix::Format::kPlain || (a.bits == b.bits && a.group == b.group));
}

// experts.{e}.{gate,up,down}_proj: one module a matrix.
Result<std::vector<GatedMlp>> Loader::experts_one_by_one(const std::string& path) {
  std::vector<GatedMlp> all;
  for (int64_t e = 0; e < c_.n_experts; ++e) {
    const std::string expert_path = path + "experts." + std::to_string(e) + ".";
    ROOST_TRY(GatedMlp expert, mlp(expert_path, c_.expert_width));
    if (e > 0 &&
        !(is_same_format(expert.gate, all[0].gate) && is_same_format(expert.up, all[0].up) &&
          is_same_format(expert.down, all[0].down))) {
      return Error{Refusal::QuantFormat, expert_path + ": not in the format of expert 0"};
    }
    all.push_back(expert);
  }
  return all;
}

Result<std::vector<GatedMlp>> Loader::experts(const std::string& path) {
  const int64_t n = c_.n_experts, width = c_.expert_width, hidden = c_.hidden;
  if (reader_.find(path + "experts.0.gate_proj.weight") != nullptr) return experts_one_by_one(path);

  std::vector<GatedMlp> all(static_cast<size_t>(n));
  const std::string fused =
      path + "experts.gate_up_proj";  // of each expert gate rows, then up rows
  if (reader_.find(fused) != nullptr) {
    ROOST_TRY(const QuantMatrix gate_up, reader_.plain_stack(fused, n, 2 * width, hidden));
    ROOST_TRY(const QuantMatrix down,
              reader_.plain_stack(path + "experts.down_proj", n, hidden, width));
    for (int64_t e = 0; e < n; ++e) {
      all[static_cast<size_t>(e)] = {.gate = gate_up.rows(2 * e * width, width),
                                     .up = gate_up.rows((2 * e + 1) * width, width),
                                     .down = down.rows(e * hidden, hidden)};
    }
    return all;
  }
  ROOST_TRY(const QuantMatrix gate, reader_.stack(path + "switch_mlp.gate_proj", n, width, hidden));
  ROOST_TRY(const QuantMatrix up, reader_.stack(path + "switch_mlp.up_proj", n, width, hidden));
  ROOST_TRY(const QuantMatrix down, reader_.stack(path + "switch_mlp.down_proj", n, hidden, width));
  for (int64_t e = 0; e < n; ++e) {
    all[static_cast<size_t>(e)] = {.gate = gate.rows(e * width, width),
                                   .up = up.rows(e * width, width),
                                   .down = down.rows(e * hidden, hidden)};
  }
  return all;
}

Result<MoeWeights> Loader::moe(const std::string& path) {
  MoeWeights w;
  ROOST_TRY(w.router, reader_.matrix(path + "gate", c_.n_experts, c_.hidden));
  ROOST_TRY(w.experts, experts(path));
  if (c_.shared_expert_width == 0) return w;
  ROOST_TRY(w.shared_gate, reader_.matrix(path + "shared_expert_gate", 1, c_.hidden));
  ROOST_TRY(w.shared, mlp(path + "shared_expert.", c_.shared_expert_width));
  return w;
}

Result<LayerWeights> Loader::layer(int64_t layer_idx) {
  const std::string path = "layers." + std::to_string(layer_idx) + ".";
  LayerWeights w;
  w.is_full_attention = c_.is_full_attention[static_cast<size_t>(layer_idx)];
  ROOST_TRY(w.input_norm, reader_.vector(path + "input_layernorm.weight", c_.hidden, norm_add_));
  ROOST_TRY(w.post_norm,
            reader_.vector(path + "post_attention_layernorm.weight", c_.hidden, norm_add_));
  if (w.is_full_attention) {
    ROOST_TRY(w.attention, full_attention(path + "self_attn."));
  } else {
    ROOST_TRY(w.delta, gated_delta(path + "linear_attn."));
  }
  if (c_.is_moe()) {
    ROOST_TRY(w.moe, moe(path + "mlp."));
  } else {
    ROOST_TRY(w.mlp, mlp(path + "mlp.", c_.intermediate));
  }
  return w;
}

Result<void> Loader::load(ModelWeights& weights) {
  int64_t first_delta = 0;
  while (c_.is_full_attention[static_cast<size_t>(first_delta)]) ++first_delta;
  ROOST_TRY(is_raw_,
            reader_.is_raw("layers." + std::to_string(first_delta) + ".linear_attn.conv1d.weight"));
  norm_add_ = is_raw_ ? 1.0f : 0.0f;

  ROOST_TRY(weights.embedding, reader_.matrix("embed_tokens", c_.vocabulary, c_.hidden));
  const bool has_head = reader_.find("lm_head.weight") != nullptr;
  if (has_head || !c_.tie_embeddings) {
    ROOST_TRY(weights.head, reader_.matrix("lm_head", c_.vocabulary, c_.hidden));
  } else {
    weights.head = weights.embedding;
  }
  weights.config.tie_embeddings = !has_head;
  ROOST_TRY(weights.final_norm, reader_.vector("norm.weight", c_.hidden, norm_add_));
  for (int64_t l = 0; l < c_.n_layers; ++l) {
    ROOST_TRY(LayerWeights w, layer(l));
    weights.layers.push_back(std::move(w));
  }
  return {};
}

bool is_vision(const Checkpoint& checkpoint) {
  for (const auto& [name, entry] : checkpoint.tensors()) {
    if (parse_weight_name(name).part == ModelPart::kVision) return true;
  }
  return false;
}

}  // namespace

Result<ModelWeights> load_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                  ModelConfig config) {
  ModelWeights weights;
  weights.config = std::move(config);
  ROOST_TRY(ModuleReader reader,
            ModuleReader::create(*checkpoint,
                                 {.global = weights.config.quantization,
                                  .modules = weights.config.module_quantization},
                                 parse_weight_name));
  ROOST_TRY_DO(Loader(reader, weights.config).load(weights));
  ROOST_TRY(weights.left_out, reader.left_out());
  weights.is_text_only = !is_vision(*checkpoint) || !checkpoint->missing_vision_shards().empty();
  weights.bytes_mapped = reader.bytes_mapped();
  weights.bytes_owned = reader.owned().n_bytes();
  weights.owned = reader.owned().release();
  weights.checkpoint = std::move(checkpoint);
  return weights;
}

namespace {

void add(const QuantMatrix& w, double share, ActiveBytes& active) {
  if (!w.exists()) return;
  active.layers += static_cast<size_t>(share * static_cast<double>(w.n_bytes()));
  active.flop_layers_per_row +=
      share * 2.0 * static_cast<double>(w.n_out) * static_cast<double>(w.n_in);
}

void add(const GatedMlp& m, double share, ActiveBytes& active) {
  for (const QuantMatrix* w : {&m.gate, &m.up, &m.down}) add(*w, share, active);
}

}  // namespace

ActiveBytes active_bytes(const ModelWeights& weights) {
  ActiveBytes active;
  active.head = weights.head.n_bytes();
  for (const LayerWeights& layer : weights.layers) {
    const FullAttentionWeights& a = layer.attention;
    const GatedDeltaWeights& d = layer.delta;
    for (const QuantMatrix* w : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out})
      add(*w, 1, active);
    add(layer.mlp, 1, active);
    add(layer.moe.router, 1, active);
    add(layer.moe.shared_gate, 1, active);
    add(layer.moe.shared, 1, active);
    // All experts have one shape, so K of them cost K times the first.
    if (!layer.moe.experts.empty()) {
      const GatedMlp& first = layer.moe.experts[0];
      active.one_expert = first.gate.n_bytes() + first.up.n_bytes() + first.down.n_bytes();
      add(layer.moe.experts[0], static_cast<double>(weights.config.experts_per_token), active);
    }
  }
  return active;
}

}  // namespace roost
