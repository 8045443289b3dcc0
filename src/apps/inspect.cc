// The report of `roost inspect`: sums over the weights as the loader resolved them.
#include "apps/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <vector>

#include "apps/complain.h"
#include "apps/load_weights.h"
#include "base/clock.h"
#include "base/memory.h"
#include "model/qwen35.h"
#include "weights/names.h"

namespace roost {
namespace {

std::string width_of(const QuantMatrix& w) {
  if (w.format == QuantMatrix::Format::kPlain) return std::string(name_of(w.dtype));
  const std::string scales = w.dtype == DType::kBF16 ? "" : " " + std::string(name_of(w.dtype));
  return fmt::format("{}-bit g{}{}", w.bits, w.group, scales);
}

// Every matrix with the name of its kind, experts one by one.
class MatrixList {
 public:
  struct Item {
    const char* kind;
    const QuantMatrix* w;
  };

  explicit MatrixList(const ModelWeights& weights) {
    add("embedding", weights.embedding);
    if (!weights.config.tie_embeddings) add("head", weights.head);
    for (const LayerWeights& layer : weights.layers) add_layer(layer);
  }
  const std::vector<Item>& items() const { return items_; }

 private:
  void add(const char* kind, const QuantMatrix& w) {
    if (w.exists()) items_.push_back({kind, &w});
  }
  void add_mlp(const char* in_kind, const char* out_kind, const GatedMlp& mlp) {
    add(in_kind, mlp.gate);
    add(in_kind, mlp.up);
    add(out_kind, mlp.down);
  }
  void add_layer(const LayerWeights& layer) {
    const FullAttentionWeights& a = layer.attention;
    add("attention q, gate", a.q);
    add("attention k, v", a.k);
    add("attention k, v", a.v);
    add("attention out", a.o);
    const GatedDeltaWeights& d = layer.delta;
    add("delta q, k, v", d.qkv);
    add("delta z", d.z);
    add("delta a, b", d.a);
    add("delta a, b", d.b);
    add("delta out", d.out);
    add_mlp("mlp gate, up", "mlp down", layer.mlp);
    add("router", layer.moe.router);
    for (const GatedMlp& expert : layer.moe.experts)
      add_mlp("experts gate, up", "experts down", expert);
    add("shared expert gate", layer.moe.shared_gate);
    add_mlp("shared gate, up", "shared down", layer.moe.shared);
  }

  std::vector<Item> items_;
};

std::string geometry(const ModelConfig& c) {
  std::string full;
  for (size_t l = 0; l < c.is_full_attention.size(); ++l) {
    if (c.is_full_attention[l]) full += (full.empty() ? "" : ",") + std::to_string(l);
  }
  std::string text = "model\n";
  const auto row = [&text](const char* what, const std::string& value) {
    text += fmt::format("  {:<22}{}\n", what, value);
  };
  row("kind", c.is_moe() ? "qwen3_5_moe (routed)" : "qwen3_5 (dense)");
  row("layers", fmt::format("{}: {} gated delta, {} full attention ({})", c.n_layers,
                            c.n_delta_layers(), c.n_full_layers(), full));
  row("hidden, vocabulary",
      fmt::format("{}, {}{}", c.hidden, c.vocabulary, c.tie_embeddings ? " (head tied)" : ""));
  row("context", fmt::format("{} tokens", c.context_max));
  row("attention", fmt::format("{} query heads, {} KV heads of {}; {} rotated, theta {}", c.n_heads,
                               c.n_kv_heads, c.head_dim, c.rotary_dims, c.rope_theta));
  row("gated delta",
      fmt::format("{} key heads of {}, {} value heads of {}, {} convolved channels", c.n_key_heads,
                  c.key_dim, c.n_value_heads, c.value_dim, c.conv_channels()));
  if (c.is_moe()) {
    row("experts", fmt::format("{} of {} a token, width {}; shared width {}", c.experts_per_token,
                               c.n_experts, c.expert_width, c.shared_expert_width));
  } else {
    row("mlp", fmt::format("width {}", c.intermediate));
  }
  row("end tokens", fmt::format("{}", fmt::join(c.end_tokens, ", ")));
  return text;
}

std::string files_table(const Checkpoint& checkpoint) {
  std::vector<std::pair<size_t, size_t>> sums(checkpoint.files().size());  // tensors, bytes
  for (const auto& [name, entry] : checkpoint.tensors()) {
    auto& [n_tensors, n_bytes] = sums[static_cast<size_t>(entry.file)];
    n_tensors += 1;
    n_bytes += entry.bytes.size();
  }
  std::string text = "\nfiles\n";
  for (size_t f = 0; f < sums.size(); ++f) {
    text += fmt::format("  {:<40}{:>7} tensors {:>15} bytes\n", checkpoint.files()[f],
                        sums[f].first, sums[f].second);
  }
  for (const std::string& name : checkpoint.missing_vision_shards()) {
    text += fmt::format("  {:<40}missing; it holds vision tensors only, so the model serves text\n",
                        name);
  }
  return text;
}

std::string bytes_table(const ModelWeights& weights, const MatrixList& list) {
  struct Sum {
    int64_t n_matrices = 0, n_weights = 0;
    size_t n_bytes = 0;
  };
  std::vector<std::pair<std::string, std::string>> order;  // kind and width, as they first appear
  std::map<std::pair<std::string, std::string>, Sum> sums;
  std::map<std::string, size_t> by_width;
  for (const auto& [kind, w] : list.items()) {
    const std::pair<std::string, std::string> key(kind, width_of(*w));
    if (!sums.contains(key)) order.push_back(key);
    Sum& sum = sums[key];
    sum.n_matrices += 1;
    sum.n_weights += w->n_out * w->n_in;
    sum.n_bytes += w->n_bytes();
    by_width[key.second] += w->n_bytes();
  }
  std::string text = fmt::format("\n{:<24}{:<16}{:>10}{:>16}{:>16}\n", "weights", "width",
                                 "matrices", "numbers", "bytes");
  for (const auto& key : order) {
    const Sum& sum = sums[key];
    text += fmt::format("  {:<22}{:<16}{:>10}{:>16}{:>16}\n", key.first, key.second, sum.n_matrices,
                        sum.n_weights, sum.n_bytes);
  }
  for (const auto& [width, n_bytes] : by_width) {
    text += fmt::format("  {:<22}{:<16}{:>42}\n", "all of this width", width, n_bytes);
  }
  text += fmt::format("  {:<38}{:>42}\n", "used where they lie in the files", weights.bytes_mapped);
  text += fmt::format("  {:<38}{:>42}\n", "converted to f32", weights.bytes_owned);
  const ActiveBytes active = active_bytes(weights);
  text += fmt::format("  {:<38}{:>42}\n", "read by one decoded row: layers", active.layers);
  text += fmt::format("  {:<38}{:>42}\n", "read by one decoded row: head", active.head);
  return text;
}

std::string left_out_table(const ModelWeights& weights) {
  struct Sum {
    size_t n_tensors = 0, n_bytes = 0;
    std::string first;
  };
  std::map<std::string, Sum> sums;
  for (const std::string& name : weights.left_out) {
    const ModelPart part = parse_weight_name(name).part;
    Sum& sum = sums[part == ModelPart::kVision ? "vision tower"
                    : part == ModelPart::kMtp  ? "mtp head"
                                               : "buffers"];
    if (sum.n_tensors == 0) sum.first = name;
    sum.n_tensors += 1;
    if (const TensorEntry* entry = weights.checkpoint->find(name))
      sum.n_bytes += entry->bytes.size();
  }
  std::string text = "\nleft out\n";
  for (const auto& [part, sum] : sums) {
    text += fmt::format("  {:<22}{} tensors, {} bytes ({}{})\n", part, sum.n_tensors, sum.n_bytes,
                        sum.first, sum.n_tensors > 1 ? ", …" : "");
  }
  if (sums.empty()) text += "  nothing\n";
  text += weights.is_text_only ? "  no vision tower in the files: text only\n" : "";
  return text;
}

// An untied embedding is only looked up: one row a token, no product.
std::string kernel_of(const QuantMatrix& w, const ModelWeights& weights, const Ops& ops) {
  const bool is_looked_up = &w == &weights.embedding && !weights.config.tie_embeddings;
  return is_looked_up ? "row lookup" : ops.kernel_for(w);
}

std::string kernels_table(const ModelWeights& weights, const MatrixList& list, const Ops& ops) {
  using Row = std::tuple<std::string, std::string, std::string, std::string>;
  std::vector<Row> rows;
  for (const auto& [kind, w] : list.items()) {
    Row row(kind, fmt::format("{}x{}", w->n_out, w->n_in), width_of(*w),
            kernel_of(*w, weights, ops));
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(std::move(row));
  }
  // The other ops have one kernel each, whatever the weights are.
  for (const char* op : {"embed", "add_rms_norm", "conv_gates", "gated_delta",
                         "qk_norm_rope_append", "attention", "route", "sample"}) {
    if (std::string_view(op) == "route" && !weights.config.is_moe()) continue;
    rows.emplace_back(op, "", "", "one kernel");
  }
  std::string text = fmt::format("\nkernels on {}\n", ops.name());
  for (const auto& [kind, shape, width, kernel] : rows) {
    text += fmt::format("  {:<22}{:<16}{:<16}{}\n", kind, shape, width, kernel);
  }
  return text;
}

void print_tensors(const Checkpoint& checkpoint) {
  fmt::print("\ntensors\n");
  for (const auto& [name, entry] : checkpoint.tensors()) {
    fmt::print("  {:<72} {:<5} {:<16} {}\n", name, name_of(entry.dtype), to_string(entry.shape),
               checkpoint.files()[static_cast<size_t>(entry.file)]);
  }
}

}  // namespace

std::map<std::string, std::string> kernels_of(const ModelWeights& weights, const Ops& ops) {
  std::map<std::string, std::string> out;
  const MatrixList list(weights);
  for (const auto& [kind, w] : list.items()) {
    const std::string kernel = kernel_of(*w, weights, ops);
    std::string& known = out[kind];
    if (known.find(kernel) == std::string::npos) known += (known.empty() ? "" : ", ") + kernel;
  }
  return out;
}

std::string inspect_report(const ModelWeights& weights, const Ops& ops) {
  const MatrixList list(weights);
  return geometry(weights.config) + files_table(*weights.checkpoint) + bytes_table(weights, list) +
         left_out_table(weights) + kernels_table(weights, list, ops);
}

void print_memory_plan(const MemoryPlan& plan) {
  fmt::print("\nmemory plan{:>42}\n", "bytes");
  const std::pair<const char*, size_t> rows[] = {{"weights, mapped", plan.weights_mapped},
                                                 {"weights, converted", plan.weights_owned},
                                                 {"K/V pages", plan.pages},
                                                 {"state slots", plan.slots},
                                                 {"kept states", plan.snapshots},
                                                 {"scratch of a step", plan.scratch},
                                                 {"workspace of kernels", plan.workspace},
                                                 {"staging of the cache's files", plan.staging},
                                                 {"together", plan.total()}};
  for (const auto& [what, n_bytes] : rows) fmt::print("  {:<30}{:>21}\n", what, n_bytes);
  fmt::print("  {} pages of {} tokens, {} of them for running streams; {} slots; {} kept states\n",
             plan.n_pages, kPageTokens, plan.n_pages_of_streams, plan.n_slots, plan.n_snapshots);
  fmt::print("  context {} tokens\n", plan.context_max);
  // A card has host memory below it; on the CPU both are one.
  const std::string host =
      plan.host == 0 ? "" : fmt::format("{} bytes of host memory below it, ", plan.host);
  fmt::print("  prefix cache: {} bytes of memory where the model runs, {}{} bytes of files\n",
             plan.snapshots + plan.cached_pages(), host, plan.disk);
}

int run_inspect(const InspectOptions& options) {
  const std::string& folder = options.load.folder;
  const Result<LoadedWeights> loaded = load_model_weights(folder, 0, true);
  if (!loaded) return complain(loaded.error());
  const ModelWeights& weights = *loaded->weights;
  if (!options.is_plan_alone) {
    ThreadPool pool(options.load.engine.n_threads > 0 ? options.load.engine.n_threads
                                                      : n_usable_cpus());
    const std::unique_ptr<Ops> ops = make_cpu_ops(pool, Qwen35::ops_limits(weights.config, 1));
    fmt::print("{}", inspect_report(weights, *ops));
    if (options.lists_tensors) print_tensors(*weights.checkpoint);
  }
  int status = 0;
  const auto say = [&](const Error& error) { status = complain(error); };
  EngineOptions engine = options.load.engine;
  if (auto drafter = load_drafter_of(options.load, weights))
    engine.drafter = std::move(drafter).value();
  else
    say(drafter.error());
  if (const Result<MemoryPlan> plan = plan_memory(weights, engine, available_memory_bytes()))
    print_memory_plan(*plan);
  else
    say(plan.error());
  const bool has_text_side = !synthetic_shape_of(folder);
  if (has_text_side) {
    if (const auto text = load_text_side(options.load, system_clock()); !text) say(text.error());
  }
  return status;
}

}  // namespace roost
