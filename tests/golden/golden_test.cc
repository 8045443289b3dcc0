// Fledgling against reference values that an independent program computed in float32
// (tests/golden/README.md): the wiring by the float64 references, the backend by their error.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "tests/model_machine.h"
#include "tests/model_run.h"

namespace roost {
namespace {

using testing::Feed;
using testing::ModelMachine;
using testing::ModelRun;

const std::string kGolden = ROOST_SOURCE_DIR "/tests/golden/";

struct Golden {
  MappedFile file;
  std::map<std::string, TensorEntry> tensors;
  json::Value index;

  static const Golden& get() {
    static const Golden golden = [] {
      Golden g{MappedFile::open(kGolden + "golden.safetensors").value(), {}, {}};
      const auto entries = parse_safetensors(g.file.bytes(), "golden.safetensors").value();
      for (const TensorEntry& e : entries) g.tensors[e.name] = e;
      g.index =
          json::parse(read_file(kGolden + "golden.json", limits::kConfigBytesMax).value()).value();
      return g;
    }();
    return golden;
  }

  Tensor tensor(const std::string& name) const {
    const TensorEntry& e = tensors.at(name);
    return {.data = const_cast<std::byte*>(e.bytes.data()), .dtype = e.dtype, .shape = e.shape};
  }
  std::vector<double> values(const std::string& name) const {
    const Tensor t = tensor(name);
    std::vector<double> v(static_cast<size_t>(t.n_elements()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = t.get(static_cast<int64_t>(i));
    return v;
  }
  std::vector<int32_t> ids(const std::string& name) const {
    std::vector<int32_t> ids;
    for (const double v : values(name)) ids.push_back(static_cast<int32_t>(v));
    return ids;
  }
};

std::vector<double> values_of(const Tensor& on_device, Device& device) {
  std::vector<std::byte> bytes(on_device.n_bytes());
  device.read(bytes.data(), on_device.data, bytes.size());
  Tensor t = on_device;
  t.data = bytes.data();
  std::vector<double> v(static_cast<size_t>(t.n_elements()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = t.get(static_cast<int64_t>(i));
  return v;
}

const std::shared_ptr<const ModelWeights>& fledgling_on_host() {
  static const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return weights;
}

const ModelWeights& fledgling() {
  return *fledgling_on_host();
}

// Where the backend's ops read it.
const ModelWeights& placed_fledgling() {
  static const auto weights = testing::placed(fledgling_on_host());
  return *weights;
}

// Everything that golden knows of one prompt, as computed by a backend.
struct Captured {
  std::map<std::string, std::vector<double>> tensors;  // "residual.3", "text0.logits", …
};

constexpr int64_t kDeltaLayer = 1;  // the layer whose inside golden stores

Captured capture(Ops& ops, const ModelWeights& weights) {
  Captured captured;
  for (int text = 0; text < 4; ++text) {
    const std::string name = "text" + std::to_string(text);
    const std::vector<int32_t> ids = Golden::get().ids(name + ".input_ids");
    ModelRun run(weights, ops, 1, 640, static_cast<int64_t>(ids.size()), 5);
    if (text == 0) {
      run.model().set_tap([&](std::string_view place, int64_t layer, const Tensor& t) {
        captured.tensors[std::string(place) + "." + std::to_string(layer)] =
            values_of(t, ops.device());
      });
    }
    run.step({Feed{0, ids}});
    captured.tensors[name + ".logits"] = {run.logits(0).begin(), run.logits(0).end()};
    if (text == 0)
      captured.tensors["state"] = values_of(run.delta_state(0, kDeltaLayer), ops.device());
  }
  return captured;
}

// Golden's values under the same names and in the same layout.
Captured golden_values() {
  const Golden& g = Golden::get();
  const ModelConfig& c = fledgling().config;
  Captured out;
  const std::vector<double> residual = g.values("text0.residual");
  const size_t stage = residual.size() / static_cast<size_t>(c.n_layers + 1);
  for (size_t l = 0; l <= static_cast<size_t>(c.n_layers); ++l) {
    out.tensors["residual." + std::to_string(l)] = {
        residual.begin() + static_cast<int64_t>(l * stage),
        residual.begin() + static_cast<int64_t>((l + 1) * stage)};
  }
  out.tensors["final_norm.0"] = g.values("text0.final_norm");
  out.tensors["conv_input.1"] = g.values("text0.gdn1.qkv");
  out.tensors["state"] = g.values("text0.gdn1.state");

  // The convolution's output splits into q, k (which the op normalizes) and v.
  const std::vector<double> conv = g.values("text0.gdn1.conv");
  const auto n_channels = static_cast<size_t>(c.conv_channels()),
             kd = static_cast<size_t>(c.key_width());
  const auto dk = static_cast<size_t>(c.key_dim);
  for (size_t t = 0; t < conv.size() / n_channels; ++t) {
    const double* row = conv.data() + t * n_channels;
    for (const bool is_key : {false, true}) {
      std::vector<double>& to = out.tensors[is_key ? "conv_k.1" : "conv_q.1"];
      for (size_t i = 0; i < kd; i += dk) {
        const double* head = row + (is_key ? kd : 0) + i;
        double sum = 0;
        for (size_t j = 0; j < dk; ++j) sum += head[j] * head[j];
        const double scale =
            1 / std::sqrt(sum + 1e-6) / (is_key ? 1 : std::sqrt(static_cast<double>(dk)));
        for (size_t j = 0; j < dk; ++j) to.push_back(head[j] * scale);
      }
    }
    out.tensors["conv_v.1"].insert(out.tensors["conv_v.1"].end(), row + 2 * kd, row + n_channels);
  }
  for (int text = 0; text < 4; ++text) {
    const std::string name = "text" + std::to_string(text) + ".logits";
    out.tensors[name] = g.values(name);
  }
  return out;
}

// Golden stores 32 of the long prompt's logit rows.
std::vector<double> stored_rows(const std::vector<double>& logits, int text) {
  if (text != 3) return logits;
  std::vector<double> out;
  const auto v = fledgling().config.vocabulary;
  for (const int32_t at : Golden::get().ids("text3.positions")) {
    out.insert(out.end(), logits.begin() + at * v, logits.begin() + (at + 1) * v);
  }
  return out;
}

const std::vector<double>& comparable(Captured& captured, const std::string& name) {
  std::vector<double>& v = captured.tensors.at(name);
  if (name == "text3.logits" && v.size() > 32u * static_cast<size_t>(fledgling().config.vocabulary))
    v = stored_rows(v, 3);
  return v;
}

double relative_rms(const std::vector<double>& have, const std::vector<double>& want, size_t begin,
                    size_t n) {
  double error = 0, size = 0;
  for (size_t i = begin; i < begin + n; ++i) {
    error += (have[i] - want[i]) * (have[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

// Expert ids ascend in our layout and are best first in golden's: compare as sets with weights.
void expect_same_experts(const Captured& captured) {
  const Golden& g = Golden::get();
  const std::vector<double> ids = g.values("text0.experts.ids"),
                            weights = g.values("text0.experts.weights");
  const auto k = static_cast<size_t>(fledgling().config.experts_per_token);
  const size_t n_rows = g.ids("text0.input_ids").size();
  for (size_t l = 0; l < static_cast<size_t>(fledgling().config.n_layers); ++l) {
    const auto& our_ids = captured.tensors.at("expert_ids." + std::to_string(l));
    const auto& our_weights = captured.tensors.at("expert_weights." + std::to_string(l));
    for (size_t t = 0; t < n_rows; ++t) {
      std::map<int, double> want, have;
      for (size_t i = 0; i < k; ++i) {
        want[static_cast<int>(ids[(l * n_rows + t) * k + i])] = weights[(l * n_rows + t) * k + i];
        have[static_cast<int>(our_ids[t * k + i])] = our_weights[t * k + i];
      }
      for (const auto& [id, weight] : want) {
        ASSERT_EQ(have.count(id), 1u) << "layer " << l << " row " << t << " expert " << id;
        EXPECT_NEAR(have[id], weight, 1e-5) << "layer " << l << " row " << t << " expert " << id;
      }
    }
  }
}

TEST(Golden, references_without_rounding_are_the_model) {
  const auto ops = make_reference_ops({.rounding = false});
  Captured captured = capture(*ops, fledgling());
  for (const auto& [name, want] : golden_values().tensors) {
    const std::vector<double>& have = comparable(captured, name);
    ASSERT_EQ(have.size(), want.size()) << name;
    double largest = 0, error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      error = std::max(error, std::abs(have[i] - want[i]));
    }
    EXPECT_LE(error, 1e-5 * largest) << name;
    std::printf("  %-16s largest error %.2g of the largest value\n", name.c_str(), error / largest);
  }
  expect_same_experts(captured);
}

// Passes every op on; remembers which experts the rows of each call chose, or makes them choose
// what was remembered. Rounding may tip a near-tie at the border of the chosen experts, and one
// exchanged expert outweighs all rounding: with the choice fixed, errors are those of arithmetic.
class FixedExperts final : public Ops {
 public:
  using Choice = std::vector<int32_t>;  // [T, K] ids of one call
  FixedExperts(Ops& inner, std::vector<Choice>& choices, bool is_recording)
      : inner_(inner), choices_(choices), is_recording_(is_recording) {}

  void run(const Route& op) override {
    inner_.run(op);
    const auto n_ids = static_cast<size_t>(op.ids.n_elements());
    if (is_recording_) {
      choices_.emplace_back(n_ids);
      device().read(choices_.back().data(), op.ids.data, op.ids.n_bytes());
      return;
    }
    const Choice& choice = choices_.at(next_++);
    ASSERT_EQ(static_cast<int64_t>(choice.size()), op.ids.n_elements());
    const std::vector<double> logits = values_of(op.logits, device());
    std::vector<float> weights(n_ids);
    const auto k = static_cast<size_t>(op.ids.dim(1)), n = static_cast<size_t>(op.logits.dim(1));
    for (size_t first = 0; first < n_ids; first += k) {
      const auto exp_of = [&](size_t i) {
        return std::exp(logits[first / k * n + static_cast<size_t>(choice[first + i])]);
      };
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += exp_of(i);
      for (size_t i = 0; i < k; ++i) weights[first + i] = static_cast<float>(exp_of(i) / sum);
    }
    device().write(op.ids.data, choice.data(), op.ids.n_bytes());
    device().write(op.weights.data, weights.data(), op.weights.n_bytes());
  }
  void run(const Embed& op) override { inner_.run(op); }
  void run(const AddRmsNorm& op) override { inner_.run(op); }
  void run(const QuantLinear& op) override { inner_.run(op); }
  void run(const ConvGates& op) override { inner_.run(op); }
  void run(const GatedDelta& op) override { inner_.run(op); }
  void run(const QkNormRopeAppend& op) override { inner_.run(op); }
  void run(const Attention& op) override { inner_.run(op); }
  void run(const MoeExperts& op) override { inner_.run(op); }
  void run(const Sample& op) override { inner_.run(op); }
  void run(const CopyPages& op) override { inner_.run(op); }
  Device& device() override { return inner_.device(); }
  DType activation() const override { return inner_.activation(); }
  std::string name() const override { return inner_.name(); }
  std::string kernel_for(const QuantMatrix& w) const override { return inner_.kernel_for(w); }

 private:
  Ops& inner_;
  std::vector<Choice>& choices_;
  bool is_recording_;
  size_t next_ = 0;
};

TEST(Golden, the_backend_is_as_close_as_its_rounding_points_allow) {
  ModelMachine machine(2);
  const auto ops = machine.make_ops(Qwen35::ops_limits(fledgling().config, 640));
  const auto exact = make_reference_ops({.rounding = false});
  const auto rounded = make_reference_ops({true, ModelMachine::kProduct});
  std::vector<FixedExperts::Choice> choices;
  FixedExperts recording(*exact, choices, true), fixed(*ops, choices, false),
      fixed_rounded(*rounded, choices, false);
  capture(recording, fledgling());
  Captured by_backend = capture(fixed, placed_fledgling()),
           by_reference = capture(fixed_rounded, fledgling());
  for (const auto& [name, want] : golden_values().tensors) {
    const auto error_of = [&](Captured& captured, size_t begin, size_t n) {
      return relative_rms(comparable(captured, name), want, begin, n);
    };
    const double error = error_of(by_backend, 0, want.size());
    const double allowed = error_of(by_reference, 0, want.size());
    EXPECT_LE(error, 1.5 * allowed + 1e-9) << name;
    std::printf("  %-16s %s %.5f  references with rounding %.5f\n", name.c_str(),
                ops->name().c_str(), error, allowed);
    if (!name.ends_with("logits")) continue;
    // One row's error is chance: a near-tie at a rounding point tips here or there. No row may be
    // far off all the same.
    const auto v = static_cast<size_t>(fledgling().config.vocabulary);
    for (size_t begin = 0; begin < want.size(); begin += v) {
      EXPECT_LE(error_of(by_backend, begin, v), 4 * error_of(by_reference, begin, v) + 1e-9)
          << name << " row " << begin / v;
    }
  }
}

size_t top_of(const double* row, size_t n) {
  return static_cast<size_t>(std::max_element(row, row + n) - row);
}

TEST(Golden, the_backend_prefers_the_same_tokens) {
  ModelMachine machine(2);
  const auto ops = machine.make_ops(Qwen35::ops_limits(fledgling().config, 1024));
  const auto v = static_cast<size_t>(fledgling().config.vocabulary);
  size_t n_rows = 0, n_same = 0;
  for (const json::Value& answer : Golden::get().index.find("continuations")->items()) {
    if (answer.find("name")->as_string().starts_with("picture")) continue;
    std::vector<int32_t> ids;
    for (const json::Value& id : answer.find("prompt_ids")->items())
      ids.push_back(static_cast<int32_t>(*id.as_int64()));
    const size_t n_prompt = ids.size();
    for (const json::Value& id : answer.find("ids")->items())
      ids.push_back(static_cast<int32_t>(*id.as_int64()));
    ModelRun run(placed_fledgling(), *ops, 1, 1024, 1024, 9);
    run.step({Feed{0, ids}});
    const std::vector<double> logits(run.logits(0).begin(), run.logits(0).end());
    for (size_t i = n_prompt; i < ids.size(); ++i) {
      const double lead = answer.find("lead")->items()[i - n_prompt].as_double();
      const bool is_same = top_of(logits.data() + (i - 1) * v, v) == static_cast<size_t>(ids[i]);
      ++n_rows;
      n_same += is_same;
      if (lead > 0.25) {
        EXPECT_TRUE(is_same) << answer.find("name")->as_string() << " token " << i - n_prompt
                             << " lead " << lead;
      }
    }
  }
  std::printf("  %zu of %zu first choices equal\n", n_same, n_rows);
  EXPECT_GT(n_rows, 250u);
}

}  // namespace
}  // namespace roost
