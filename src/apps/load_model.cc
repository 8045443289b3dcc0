// Loading, step by step (docs/SERVER.md, start).
#include "apps/load_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/inspect.h"
#include "apps/load_weights.h"
#include "apps/machine.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "weights/config.h"
#include "weights/drafter.h"
#include "weights/weights.h"

namespace roost {

namespace {

std::string mib(size_t n_bytes) {
  return fmt::format("{:.1f}", static_cast<double>(n_bytes) / 1048576);
}

// Logs what a step took since the one before.
class Steps {
 public:
  explicit Steps(const Clock& clock) : clock_(clock), last_ns_(clock.now_ns()) {}

  void done(std::string_view step, std::string detail) {
    const int64_t now_ns = clock_.now_ns();
    log(LogLevel::kInfo, "load",
        {{"step", std::string(step)},
         {"ms", fmt::format("{:.1f}", static_cast<double>(now_ns - last_ns_) / 1e6)},
         {"resident_mib", mib(resident_bytes())},
         {"detail", std::move(detail)}});
    last_ns_ = now_ns;
  }

 private:
  const Clock& clock_;
  int64_t last_ns_;
};

// A file that may be absent: null then.
Result<json::Value> read_optional_json(const std::string& path, size_t n_bytes_max) {
  if (!file_exists(path)) return json::Value();
  return read_json(path, n_bytes_max);
}

std::string name_of_folder(const std::string& folder) {
  std::error_code ec;
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder, ec);
  const std::string name = path.filename().string();
  return name.empty() ? "model" : name;
}

// chat_template.jinja wins over the member of tokenizer_config.json.
Result<std::string> read_template(const LoadOptions& options, const json::Value& tokenizer_config) {
  if (!options.template_file.empty())
    return read_file(options.template_file, limits::kTemplateBytesMax);
  const std::string path = options.folder + "/chat_template.jinja";
  if (file_exists(path)) return read_file(path, limits::kTemplateBytesMax);
  const json::Value* inlined = tokenizer_config.find("chat_template");
  if (inlined != nullptr && inlined->is_string()) return inlined->as_string();
  return Error{Refusal::FileMissing, path + ", and tokenizer_config.json has no chat_template"};
}

// End tokens that the text side names, beside those of the configuration.
void add_end_tokens(const Tokenizer& tokenizer, const json::Value& tokenizer_config,
                    std::vector<int32_t>& ids) {
  std::vector<std::string> texts = {"<|im_end|>", "<|endoftext|>"};
  const json::Value* eos = tokenizer_config.find("eos_token");
  if (eos != nullptr && eos->is_object()) eos = eos->find("content");
  if (eos != nullptr && eos->is_string()) texts.push_back(eos->as_string());
  for (const std::string& text : texts) {
    const std::optional<Token> id = tokenizer.find_added(text);
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
}

// Where `from` says something, it counts.
void take_over(const GenerationDefaults& from, SamplingDefaults& to) {
  to.temperature = from.temperature.value_or(to.temperature);
  to.top_p = from.top_p.value_or(to.top_p);
  to.min_p = from.min_p.value_or(to.min_p);
  to.top_k = from.top_k.value_or(to.top_k);
  to.presence_penalty = from.presence_penalty.value_or(to.presence_penalty);
  to.frequency_penalty = from.frequency_penalty.value_or(to.frequency_penalty);
  to.repetition_penalty = from.repetition_penalty.value_or(to.repetition_penalty);
}

// Names the weights: two folders of one digest hold tensors of the same names, types and shapes.
std::string digest_of(const std::string& config_text, const Checkpoint& checkpoint) {
  std::string text = config_text;
  for (const auto& [name, tensor] : checkpoint.tensors())
    text += fmt::format("\n{} {} {}", name, to_string(tensor.shape), tensor.bytes.size());
  return sha256_hex(std::as_bytes(std::span(text)));
}

int64_t count_parameters(const Checkpoint& checkpoint, int bits) {
  int64_t n = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool is_scale = name.ends_with(".scales") || name.ends_with(".biases");
    const auto n_bytes = static_cast<int64_t>(tensor.bytes.size());
    if (is_scale) continue;
    n += tensor.dtype == DType::kU32 ? n_bytes * 8 / bits : tensor.shape.n_elements();
  }
  return n;
}

struct TextSide {
  std::shared_ptr<ServedModel> model;
  ModelConfig config;
  std::string config_text;
};

Result<TextSide> load_text(const LoadOptions& options, const Clock& clock, Steps& steps) {
  TextSide out;
  out.model = std::make_shared<ServedModel>();
  ServedModel& model = *out.model;
  const std::string& folder = options.folder;
  ROOST_TRY(const json::Value config, read_json(folder + "/config.json", limits::kConfigBytesMax));
  out.config_text = json::write(config);
  ROOST_TRY(out.config, parse_config(config));
  ROOST_TRY(const json::Value generation,
            read_optional_json(folder + "/generation_config.json", limits::kConfigBytesMax));
  ROOST_TRY(const GenerationDefaults defaults, parse_generation_config(generation, out.config));
  take_over(defaults, model.defaults);
  take_over(options.sampling, model.defaults);
  for (const std::string& field : defaults.ignored)
    log(LogLevel::kWarning, "generation_config_ignored", {{"field", field}});
  steps.done("config", fmt::format("{} layers", out.config.n_layers));

  const std::string tokenizer_path = folder + "/tokenizer.json";
  ROOST_TRY(const std::string tokenizer_text,
            read_file(tokenizer_path, limits::kTokenizerBytesMax));
  ROOST_TRY(const json::Value tokenizer, json_of_file(tokenizer_path, tokenizer_text));
  model.tokenizer_sha256 = sha256_hex(std::as_bytes(std::span(tokenizer_text)));
  ROOST_TRY(const json::Value tokenizer_config,
            read_optional_json(folder + "/tokenizer_config.json", limits::kConfigBytesMax));
  ROOST_TRY(model.tokenizer, Tokenizer::create(tokenizer, tokenizer_config));
  if (model.tokenizer.n_tokens() > out.config.vocabulary)
    return Error{Refusal::TokenizerFile,
                 fmt::format("have {} tokens, the model has {} rows", model.tokenizer.n_tokens(),
                             out.config.vocabulary)};
  add_end_tokens(model.tokenizer, tokenizer_config, out.config.end_tokens);
  steps.done("tokenizer", fmt::format("{} tokens", model.tokenizer.n_tokens()));

  ROOST_TRY(const std::string source, read_template(options, tokenizer_config));
  ROOST_TRY(model.chat_template, ChatTemplate::parse(source));
  model.ids = {name_of_folder(folder)};
  model.ids.insert(model.ids.end(), options.aliases.begin(), options.aliases.end());
  model.grammar_bytes_max = options.grammar_bytes_max;
  derive_rules(model, source);
  model.rules.is_strict_model = options.is_strict_model;
  model.rules.effort_budgets = options.effort_budgets;
  model.thinking = options.thinking;
  model.end_tokens = out.config.end_tokens;
  model.context_train = out.config.context_max;
  model.created = clock.unix_seconds();
  steps.done("template", sha256_hex(std::as_bytes(std::span(source))).substr(0, 12));
  return out;
}

std::string summary_of(const DrafterWeights& drafter) {
  const DrafterConfig& c = drafter.config;
  return fmt::format("DFlash {}, {} layers, blocks of {} rows, {} taps, {} MiB", c.version,
                     c.n_layers(), c.block_rows_max, c.n_taps(),
                     mib(drafter.bytes_mapped + drafter.bytes_owned));
}

void log_plan(const MemoryPlan& plan) {
  log(LogLevel::kInfo, "memory_plan",
      {{"total_mib", mib(plan.total() + plan.host)},
       {"weights_mapped_mib", mib(plan.weights_mapped)},
       {"weights_owned_mib", mib(plan.weights_owned)},
       {"pages_mib", mib(plan.pages)},
       {"n_pages", fmt::to_string(plan.n_pages)},
       {"slots_mib", mib(plan.slots)},
       {"n_slots", fmt::to_string(plan.n_slots)},
       {"snapshots_mib", mib(plan.snapshots)},
       {"n_snapshots", fmt::to_string(plan.n_snapshots)},
       {"scratch_mib", mib(plan.scratch)},
       {"workspace_mib", mib(plan.workspace)},
       {"host_mib", mib(plan.host)},
       {"staging_mib", mib(plan.staging)}});
}

}  // namespace

Result<std::shared_ptr<ServedModel>> load_text_side(const LoadOptions& options,
                                                    const Clock& clock) {
  Steps steps(clock);
  ROOST_TRY(TextSide text, load_text(options, clock, steps));
  return text.model;
}

Result<std::shared_ptr<const DrafterWeights>> load_drafter_of(const LoadOptions& options,
                                                              const ModelWeights& target) {
  std::string folder = options.drafter;
  if (folder.empty()) folder = options.folder + "/drafter";
  const bool is_there = !options.drafter.empty() || file_exists(folder + "/config.json");
  if (!options.engine.has_drafts || !is_there) return std::shared_ptr<const DrafterWeights>();
  if (options.drafter_bits != 0 && options.drafter_bits != 4)
    return Error{Refusal::FlagValue,
                 "--drafter-bits: have " + std::to_string(options.drafter_bits) + ", want 0 or 4"};
  const DrafterWidth width =
      options.drafter_bits == 4 ? DrafterWidth::kFourBits : DrafterWidth::kAsPublished;
  ROOST_TRY(DrafterWeights weights, load_drafter(folder, target, width));
  return std::make_shared<const DrafterWeights>(std::move(weights));
}

Result<std::shared_ptr<ServedModel>> load_model(const LoadOptions& options, const Clock& clock) {
  Steps steps(clock);
  ROOST_TRY(const Machine machine, Machine::open(options.device, options.engine.n_threads));
  ROOST_TRY(TextSide text, load_text(options, clock, steps));
  ServedModel& model = *text.model;
  const int bits = text.config.quantization ? text.config.quantization->bits : 16;

  ROOST_TRY(Checkpoint opened, Checkpoint::open(options.folder));
  auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  model.digest = digest_of(text.config_text, *checkpoint);
  model.n_parameters = count_parameters(*checkpoint, bits);
  for (const auto& [name, tensor] : checkpoint->tensors())
    model.n_bytes += static_cast<int64_t>(tensor.bytes.size());
  steps.done("checkpoint", fmt::format("{} files, {} tensors", checkpoint->files().size(),
                                       checkpoint->tensors().size()));
  for (const std::string& shard : checkpoint->missing_vision_shards())
    log(LogLevel::kWarning, "vision_shard_missing", {{"file", shard}, {"effect", "text only"}});

  ROOST_TRY(ModelWeights weights, load_weights(checkpoint, std::move(text.config)));
  auto shared_weights = std::make_shared<const ModelWeights>(std::move(weights));
  steps.done("weights",
             fmt::format("{} MiB mapped, {} MiB owned", mib(shared_weights->bytes_mapped),
                         mib(shared_weights->bytes_owned)));
  ROOST_TRY(const bool is_resident, make_resident(*shared_weights));
  steps.done("residency", is_resident ? "weights are in memory" : "weights are larger than memory");

  EngineOptions engine_options = options.engine;
  ROOST_TRY(engine_options.drafter, load_drafter_of(options, *shared_weights));
  if (!machine.is_cpu()) {
    ROOST_TRY(shared_weights, machine.place(shared_weights, nullptr));
    if (engine_options.drafter) {
      ROOST_TRY(engine_options.drafter, machine.place(engine_options.drafter));
    }
    steps.done("upload", fmt::format("{} MiB on the device", mib(shared_weights->bytes_owned)));
  }

  if (engine_options.drafter) {
    const DrafterWeights& drafter = *engine_options.drafter;
    const std::string folder =
        options.drafter.empty() ? options.folder + "/drafter" : options.drafter;
    model.drafter = {name_of_folder(folder), hex_of(drafter.identity),
                     drafter.config.block_rows_max, drafter.config.n_taps()};
  }
  model.kv_format = engine_options.kv == KvFormat::kInt8 ? "int8" : "bf16";
  model.snapshot_every = engine_options.snapshot_every;
  model.chunk_ms = engine_options.gap_ns_max / 1'000'000;
  model.cache_folder = engine_options.cache_folder;
  if (model.drafter) steps.done("drafter", summary_of(*engine_options.drafter));
  engine_options.hardware = machine.hardware();
  model.kernels =
      kernels_of(*shared_weights,
                 *machine.hardware()->make_ops(Qwen35::ops_limits(shared_weights->config, 1)));
  engine_options.n_tokens = model.tokenizer.n_tokens();
  engine_options.turn_token = model.tokenizer.find_added("<|im_start|>").value_or(-1);
  ROOST_TRY(std::unique_ptr<Engine> engine,
            Engine::create(std::move(shared_weights), engine_options, clock));
  model.engine = std::move(engine);
  log_plan(model.engine->memory_plan());
  steps.done("engine",
             fmt::format("{}, context {}", model.engine->backend(), model.engine->context_max()));
  return text.model;
}

}  // namespace roost
