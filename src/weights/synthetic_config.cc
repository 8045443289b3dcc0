// Geometries of synthetic checkpoints: their config.json and the list of their tensors.
#include <cmath>
#include <optional>

#include "base/limits.h"
#include "weights/quant_config.h"
#include "weights/synthetic.h"

namespace roost {

namespace {

struct Geometry {
  std::string_view name;
  int64_t hidden, n_layers, n_heads, n_kv_heads, head_dim;
  int64_t n_key_heads, n_value_heads, key_dim, value_dim;
  int64_t intermediate;                                              // dense
  int64_t n_experts, experts_per_token, expert_width, shared_width;  // routed
  int64_t vocabulary;
  std::vector<int> mrope_section;
  int64_t end_token, image_token, video_token, vision_start, vision_end;
};

// The published sizes (docs/MODEL.md, configuration); tiny has Fledgling's tokenizer, and axes that
// differ from each other, so that an exchanged pair shows.
const Geometry kGeometries[] = {
    {"tiny", 256, 4,   16,  2,    64,        2,    8,    64,   32,   384,
     16,     4,   128, 384, 3072, {3, 3, 2}, 3058, 3062, 3063, 3059, 3060},
    {"27b", 5120, 64, 24, 4,      256,          16,     48,     128,    128,    17408,
     0,     0,    0,  0,  248320, {11, 11, 10}, 248044, 248056, 248057, 248053, 248054},
    {"35b-a3b", 2048, 40,  16,  2,      256,          16,     32,     128,    128,    0,
     256,       8,    512, 512, 248320, {11, 11, 10}, 248044, 248056, 248057, 248053, 248054},
    {"ornith-122b", 3072, 48,   32,   2,      256,          16,     64,     128,    128,    0,
     256,           8,    1024, 1024, 248320, {11, 11, 10}, 248044, 248056, 248057, 248053, 248054},
};

constexpr int64_t kInterval = 4;  // every fourth layer has full attention
constexpr int kGateBits = 8,
              kGateGroup = 64;  // router and shared-expert gate, at every width of the rest

Error refuse(const std::string& flag, const std::string& what) {
  return {Refusal::FlagValue, flag + ": " + what};
}

// What is written: the geometry with the options applied. `published_layers` scales the outputs of
// the layers, so that layer l has the same bits whatever n_layers is.
struct Plan {
  Geometry g;
  bool is_moe = false;
  int64_t published_layers = 0;
};

Result<Plan> plan_of(const SyntheticOptions& options) {
  const Geometry* found = nullptr;
  for (const Geometry& g : kGeometries) {
    if (g.name == options.shape) found = &g;
  }
  if (found == nullptr)
    return refuse("shape", options.shape + " (tiny, 27b, 35b-a3b or ornith-122b)");
  if (!is_quant_width(options.bits))
    return refuse("--bits", std::to_string(options.bits) + " (2, 3, 4, 5, 6 or 8)");
  if (!is_quant_group(options.group))
    return refuse("--group", std::to_string(options.group) + " (32, 64 or 128)");
  if (options.n_layers < 0 || options.n_layers > limits::kLayersMax) {
    return refuse("--layers", std::to_string(options.n_layers));
  }
  const bool is_tiny = found->name == "tiny";
  if (!is_tiny && (!options.has_experts || options.n_heads != 0 || options.n_shards != 1)) {
    return refuse("shape",
                  options.shape + " has its own experts, heads and shards; only tiny takes others");
  }
  if (options.n_shards < 1 || options.n_shards > 64)
    return refuse("--shards", std::to_string(options.n_shards));

  Plan plan{.g = *found, .is_moe = found->n_experts > 0, .published_layers = found->n_layers};
  if (options.n_layers > 0) plan.g.n_layers = options.n_layers;
  if (!is_tiny) return plan;
  plan.is_moe = options.has_experts;
  if (options.n_heads != 0) plan.g.n_heads = options.n_heads;
  // o_proj's inputs must be a multiple of every group.
  if (plan.g.n_heads < 2 || plan.g.n_heads > 64 || plan.g.n_heads % 2 != 0) {
    return refuse("--heads", std::to_string(options.n_heads) + " (an even number from 2 to 64)");
  }
  return plan;
}

json::Value quantization(const Plan& plan, const SyntheticOptions& options) {
  using json::Value;
  Value quant = Value::object();
  quant.set("group_size", Value::integer(options.group));
  quant.set("bits", Value::integer(options.bits));
  quant.set("mode", Value::string("affine"));
  if (!plan.is_moe) return quant;
  for (int64_t l = 0; l < plan.g.n_layers; ++l) {
    for (const char* gate : {"gate", "shared_expert_gate"}) {
      Value own = Value::object();
      own.set("group_size", Value::integer(kGateGroup));
      own.set("bits", Value::integer(kGateBits));
      quant.set("language_model.model.layers." + std::to_string(l) + ".mlp." + gate,
                std::move(own));
    }
  }
  return quant;
}

json::Value rope_parameters(const Geometry& g) {
  using json::Value;
  Value section = Value::array();
  for (const int n : g.mrope_section) section.push(Value::integer(n));
  Value rope = Value::object();
  rope.set("mrope_interleaved", Value::boolean(true));
  rope.set("mrope_section", std::move(section));
  rope.set("partial_rotary_factor", Value::real(0.25));
  rope.set("rope_theta", Value::integer(10'000'000));
  rope.set("rope_type", Value::string("default"));
  return rope;
}

json::Value text_config(const Plan& plan) {
  using json::Value;
  const Geometry& g = plan.g;
  Value text = Value::object();
  text.set("model_type", Value::string(plan.is_moe ? "qwen3_5_moe_text" : "qwen3_5_text"));
  text.set("dtype", Value::string("bfloat16"));
  text.set("attention_bias", Value::boolean(false));
  text.set("attn_output_gate", Value::boolean(true));
  text.set("hidden_act", Value::string("silu"));
  text.set("mamba_ssm_dtype", Value::string("float32"));
  text.set("mtp_num_hidden_layers", Value::integer(0));
  text.set("rms_norm_eps", Value::real(1e-6));
  text.set("tie_word_embeddings", Value::boolean(false));
  const std::pair<const char*, int64_t> sizes[] = {{"eos_token_id", g.end_token},
                                                   {"full_attention_interval", kInterval},
                                                   {"head_dim", g.head_dim},
                                                   {"hidden_size", g.hidden},
                                                   {"linear_conv_kernel_dim", 4},
                                                   {"linear_key_head_dim", g.key_dim},
                                                   {"linear_num_key_heads", g.n_key_heads},
                                                   {"linear_num_value_heads", g.n_value_heads},
                                                   {"linear_value_head_dim", g.value_dim},
                                                   {"max_position_embeddings", 262'144},
                                                   {"num_attention_heads", g.n_heads},
                                                   {"num_hidden_layers", g.n_layers},
                                                   {"num_key_value_heads", g.n_kv_heads},
                                                   {"vocab_size", g.vocabulary}};
  for (const auto& [key, value] : sizes) text.set(key, Value::integer(value));
  if (plan.is_moe) {
    text.set("num_experts", Value::integer(g.n_experts));
    text.set("num_experts_per_tok", Value::integer(g.experts_per_token));
    text.set("moe_intermediate_size", Value::integer(g.expert_width));
    text.set("shared_expert_intermediate_size", Value::integer(g.shared_width));
  } else {
    text.set("intermediate_size", Value::integer(g.intermediate));
  }
  text.set("rope_parameters", rope_parameters(g));
  return text;
}

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

// The list of tensors, in the order of the model's parameters.
class Lister {
 public:
  Lister(const Plan& plan, const SyntheticOptions& options)
      : g_(plan.g),
        is_moe_(plan.is_moe),
        out_share_(1 / std::sqrt(2.0 * static_cast<double>(plan.published_layers))),
        rest_{options.bits, options.group} {}

  std::vector<SyntheticTensor> all();

 private:
  struct Width {
    int bits, group;
  };
  // sigma: of the decoded weights. shape: [n_out, n_in] or [E, n_out, n_in].
  void matrix(const std::string& module, const Shape& shape, double sigma, Width width);
  void input(const std::string& module, const Shape& shape) {  // keeps the size of its inputs
    matrix(module, shape, 1 / std::sqrt(static_cast<double>(shape[shape.rank() - 1])), rest_);
  }
  void output(const std::string& module, const Shape& shape) {  // adds to the residual stream
    matrix(module, shape, out_share_ / std::sqrt(static_cast<double>(shape[shape.rank() - 1])),
           rest_);
  }
  void vector(const std::string& name, SyntheticKind kind, DType dtype, const Shape& shape,
              double base = 0) {
    add({.name = name,
         .kind = kind,
         .dtype = dtype,
         .shape = shape,
         .id = fnv1a(name),
         .base = static_cast<float>(base),
         .bits = 0});
  }
  void norm(const std::string& name, int64_t n) {
    vector(name, SyntheticKind::kNorm, DType::kBF16, {n});
  }
  void add(SyntheticTensor tensor) { tensors_.push_back(std::move(tensor)); }
  void layer(int64_t layer_idx);
  void attention(const std::string& path);
  void delta(const std::string& path);
  void mlp(const std::string& path);

  const Geometry& g_;
  bool is_moe_;
  double out_share_;
  Width rest_;
  std::vector<SyntheticTensor> tensors_;
};

void Lister::matrix(const std::string& module, const Shape& shape, double sigma, Width width) {
  const double code_sigma =
      std::sqrt((std::ldexp(1.0, 2 * width.bits) - 1) / 12);  // of a uniform code
  const auto base = static_cast<float>(sigma / code_sigma * 0x1p-16);
  const int64_t n_in = shape[shape.rank() - 1];
  Shape words, groups;
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    words.append(shape[i]);
    groups.append(shape[i]);
  }
  words.append(n_in / 32 * width.bits);
  groups.append(n_in / width.group);
  const std::string names[] = {module + ".weight", module + ".scales", module + ".biases"};
  add({.name = names[0],
       .kind = SyntheticKind::kCodes,
       .dtype = DType::kU32,
       .shape = words,
       .id = fnv1a(names[0]),
       .base = 0,
       .bits = width.bits});
  add({.name = names[1],
       .kind = SyntheticKind::kScales,
       .dtype = DType::kBF16,
       .shape = groups,
       .id = fnv1a(names[1]),
       .base = base,
       .bits = width.bits});
  add({.name = names[2],
       .kind = SyntheticKind::kBiases,
       .dtype = DType::kBF16,
       .shape = groups,
       .id = fnv1a(names[1]),
       .base = base,
       .bits = width.bits});
}

void Lister::attention(const std::string& path) {
  input(path + "q_proj", {2 * g_.n_heads * g_.head_dim, g_.hidden});
  input(path + "k_proj", {g_.n_kv_heads * g_.head_dim, g_.hidden});
  input(path + "v_proj", {g_.n_kv_heads * g_.head_dim, g_.hidden});
  output(path + "o_proj", {g_.hidden, g_.n_heads * g_.head_dim});
  norm(path + "q_norm.weight", g_.head_dim);
  norm(path + "k_norm.weight", g_.head_dim);
}

void Lister::delta(const std::string& path) {
  const int64_t values = g_.n_value_heads * g_.value_dim;
  const int64_t channels = 2 * g_.n_key_heads * g_.key_dim + values;
  input(path + "in_proj_qkv", {channels, g_.hidden});
  input(path + "in_proj_z", {values, g_.hidden});
  input(path + "in_proj_b", {g_.n_value_heads, g_.hidden});
  input(path + "in_proj_a", {g_.n_value_heads, g_.hidden});
  // The sum of four 16-bit numbers has the deviation 65536/√3.
  vector(path + "conv1d.weight", SyntheticKind::kConvTaps, DType::kBF16, {channels, 4, 1},
         0.5 * std::sqrt(3.0) / 65536);
  vector(path + "A_log", SyntheticKind::kALog, DType::kF32, {g_.n_value_heads});
  vector(path + "dt_bias", SyntheticKind::kDtBias, DType::kBF16, {g_.n_value_heads});
  norm(path + "norm.weight", g_.value_dim);
  output(path + "out_proj", {g_.hidden, values});
}

void Lister::mlp(const std::string& path) {
  if (!is_moe_) {
    input(path + "gate_proj", {g_.intermediate, g_.hidden});
    input(path + "up_proj", {g_.intermediate, g_.hidden});
    output(path + "down_proj", {g_.hidden, g_.intermediate});
    return;
  }
  const double gate_sigma = 1 / std::sqrt(static_cast<double>(g_.hidden));
  matrix(path + "gate", {g_.n_experts, g_.hidden}, gate_sigma, {kGateBits, kGateGroup});
  input(path + "switch_mlp.gate_proj", {g_.n_experts, g_.expert_width, g_.hidden});
  input(path + "switch_mlp.up_proj", {g_.n_experts, g_.expert_width, g_.hidden});
  output(path + "switch_mlp.down_proj", {g_.n_experts, g_.hidden, g_.expert_width});
  input(path + "shared_expert.gate_proj", {g_.shared_width, g_.hidden});
  input(path + "shared_expert.up_proj", {g_.shared_width, g_.hidden});
  output(path + "shared_expert.down_proj", {g_.hidden, g_.shared_width});
  matrix(path + "shared_expert_gate", {1, g_.hidden}, gate_sigma, {kGateBits, kGateGroup});
}

void Lister::layer(int64_t layer_idx) {
  const std::string path = "language_model.model.layers." + std::to_string(layer_idx) + ".";
  norm(path + "input_layernorm.weight", g_.hidden);
  if ((layer_idx + 1) % kInterval == 0) {
    attention(path + "self_attn.");
  } else {
    delta(path + "linear_attn.");
  }
  norm(path + "post_attention_layernorm.weight", g_.hidden);
  mlp(path + "mlp.");
}

std::vector<SyntheticTensor> Lister::all() {
  matrix("language_model.model.embed_tokens", {g_.vocabulary, g_.hidden}, 1, rest_);
  for (int64_t l = 0; l < g_.n_layers; ++l) layer(l);
  norm("language_model.model.norm.weight", g_.hidden);
  input("language_model.lm_head", {g_.vocabulary, g_.hidden});
  return std::move(tensors_);
}

}  // namespace

Result<json::Value> synthetic_config(const SyntheticOptions& options) {
  using json::Value;
  ROOST_TRY(const Plan plan, plan_of(options));
  Value config = Value::object();
  Value architectures = Value::array();
  architectures.push(Value::string(plan.is_moe ? "Qwen3_5MoeForConditionalGeneration"
                                               : "Qwen3_5ForConditionalGeneration"));
  config.set("architectures", std::move(architectures));
  config.set("model_type", Value::string(plan.is_moe ? "qwen3_5_moe" : "qwen3_5"));
  config.set("image_token_id", Value::integer(plan.g.image_token));
  config.set("video_token_id", Value::integer(plan.g.video_token));
  config.set("vision_start_token_id", Value::integer(plan.g.vision_start));
  config.set("vision_end_token_id", Value::integer(plan.g.vision_end));
  config.set("tie_word_embeddings", Value::boolean(false));
  config.set("quantization", quantization(plan, options));
  config.set("quantization_config", quantization(plan, options));
  config.set("text_config", text_config(plan));
  return config;
}

Result<std::vector<SyntheticTensor>> synthetic_tensors(const SyntheticOptions& options) {
  ROOST_TRY(const Plan plan, plan_of(options));
  return Lister(plan, options).all();
}

}  // namespace roost
