// A model under test: runs rows of several sequences in any cut, and shows every byte that must not
// depend on the cut.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/qwen35.h"
#include "weights/weights.h"

namespace roost::testing {

inline std::shared_ptr<const ModelWeights> load_model(const std::string& folder) {
  auto text = read_file(folder + "/config.json", limits::kConfigBytesMax);
  ROOST_CHECK(text);
  auto config = parse_config(json::parse(*text).value());
  ROOST_CHECK(config);
  auto checkpoint = Checkpoint::open(folder);
  ROOST_CHECK(checkpoint);
  auto weights = load_weights(std::make_shared<const Checkpoint>(std::move(checkpoint).value()),
                              std::move(config).value());
  ROOST_CHECK(weights);
  return std::make_shared<const ModelWeights>(std::move(weights).value());
}

// Rows to run for one sequence in one step.
struct Feed {
  int sequence = 0;
  std::vector<int32_t> tokens;
};

class ModelRun {
 public:
  // Pages come from a free list shuffled by page_seed.
  ModelRun(const ModelWeights& weights, Ops& ops, int n_sequences, int64_t context,
           int64_t rows_max, uint64_t page_seed, KvFormat kv = KvFormat::kActivation)
      : weights_(weights),
        device_(ops.device()),
        model_(weights, ops, rows_max, rows_max),
        state_(ModelState::create(weights.config, ops.activation(), pages_for(n_sequences, context),
                                  static_cast<int32_t>(n_sequences), 0, ops.device(), kv)),
        logits_(ops.device().take(static_cast<size_t>(rows_max * weights.config.vocabulary) *
                                  sizeof(float))),
        sequences_(static_cast<size_t>(n_sequences)) {
    std::vector<int32_t> free(static_cast<size_t>(state_.n_pages));
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int32_t>(i);
    std::shuffle(free.begin(), free.end(), std::mt19937_64(page_seed));
    std::vector<int32_t> slots(sequences_.size());
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    std::shuffle(slots.begin(), slots.end(), std::mt19937_64(page_seed + 1));
    const size_t n_pages = static_cast<size_t>((context + kPageTokens - 1) / kPageTokens);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      sequences_[s].slot = slots[s];
      sequences_[s].pages.assign(free.begin() + static_cast<int64_t>(s * n_pages),
                                 free.begin() + static_cast<int64_t>((s + 1) * n_pages));
    }
  }

  Qwen35& model() { return model_; }
  const ModelState& state() const { return state_; }

  // One step; the logits of every fed row, appended to its sequence's rows.
  void step(const std::vector<Feed>& feeds) {
    std::vector<int32_t> tokens, positions, logit_rows;
    std::vector<RowSpan> rows;
    std::vector<DeltaSpan> delta;
    for (const Feed& feed : feeds) {
      Sequence& s = sequences_[static_cast<size_t>(feed.sequence)];
      const auto first = static_cast<int32_t>(tokens.size()),
                 n = static_cast<int32_t>(feed.tokens.size());
      rows.push_back({first, n, s.n_tokens, s.pages.data()});
      delta.push_back({.first_row = first,
                       .n_new = n,
                       .store_after = n,
                       .first_packed = first,
                       .slot = s.slot});
      for (int32_t i = 0; i < n; ++i) {
        tokens.push_back(feed.tokens[static_cast<size_t>(i)]);
        positions.insert(positions.end(), 3, s.n_tokens + i);
        logit_rows.push_back(first + i);
      }
      s.n_tokens += n;
    }
    const int64_t v = weights_.config.vocabulary, n_rows = static_cast<int64_t>(tokens.size());
    const Tensor out = logits_.tensor(DType::kF32, {n_rows, v});
    model_.forward({.tokens = tokens,
                    .positions = positions,
                    .rows = rows,
                    .delta_rows = delta,
                    .logit_rows = logit_rows,
                    .logits = out},
                   state_);
    std::vector<float> logits(static_cast<size_t>(n_rows * v));
    device_.read(logits.data(), out.data, out.n_bytes());
    int64_t row = 0;
    for (const Feed& feed : feeds) {
      std::vector<float>& to = sequences_[static_cast<size_t>(feed.sequence)].logits;
      const int64_t n = static_cast<int64_t>(feed.tokens.size());
      to.insert(to.end(), logits.begin() + row * v, logits.begin() + (row + n) * v);
      row += n;
    }
  }

  // [tokens run so far, V]
  const std::vector<float>& logits(int sequence) const {
    return sequences_[static_cast<size_t>(sequence)].logits;
  }

  // K/V of every token in order, then states and conv tails of every layer, as bytes.
  std::vector<std::byte> memory_of(int sequence) const {
    const Sequence& s = sequences_[static_cast<size_t>(sequence)];
    std::vector<std::byte> bytes;
    each_part(s, [&](const Tensor& t) {
      bytes.resize(bytes.size() + t.n_bytes());
      device_.read(bytes.data() + bytes.size() - t.n_bytes(), t.data, t.n_bytes());
    });
    return bytes;
  }

  // Gives a sequence that has run nothing the memory of another run's after n_tokens, so that it
  // goes on from there. Its logits start behind them.
  void restore(int sequence, int32_t n_tokens, const std::vector<std::byte>& memory) {
    Sequence& s = sequences_[static_cast<size_t>(sequence)];
    ROOST_CHECK(s.n_tokens == 0);
    s.n_tokens = n_tokens;
    size_t at = 0;
    each_part(s, [&](const Tensor& t) {
      device_.write(t.data, memory.data() + at, t.n_bytes());
      at += t.n_bytes();
    });
    ROOST_CHECK(at == memory.size());
  }

  // Recurrent state of one gated-delta layer, in layer order among those.
  Tensor delta_state(int sequence, size_t delta_idx) const {
    return state_.delta[delta_idx].state.at(sequences_[static_cast<size_t>(sequence)].slot);
  }

 private:
  struct Sequence {
    std::vector<int32_t> pages;
    int32_t slot = 0, n_tokens = 0;
    std::vector<float> logits;
  };
  // Everything that a sequence remembers, in the order of memory_of.
  template <class Function>
  void each_part(const Sequence& s, const Function& f) const {
    for (const ModelState::Pages& p : state_.pages) {
      p.for_each([&](const Tensor& pool) {
        const bool is_transposed = p.k_scales.exists() && pool.data == p.v.data;
        for (int32_t t = 0; t < s.n_tokens; ++t) {
          const Tensor page = pool.at(s.pages[static_cast<size_t>(t / kPageTokens)]);
          for (int64_t head = 0; head < page.dim(0); ++head) {
            const Tensor tokens = page.at(head);
            if (!is_transposed) f(tokens.at(t % kPageTokens));
            for (int64_t i = 0; is_transposed && i < tokens.dim(0); ++i)
              f(tokens.at(i).at(t % kPageTokens));
          }
        }
      });
    }
    for (const ModelState::Delta& d : state_.delta) {
      f(d.state.at(s.slot));
      f(d.tail.at(s.slot));
    }
  }
  static int32_t pages_for(int n_sequences, int64_t context) {
    return static_cast<int32_t>(n_sequences * ((context + kPageTokens - 1) / kPageTokens) + 3);
  }

  const ModelWeights& weights_;
  Device& device_;
  Qwen35 model_;
  ModelState state_;
  Buffer logits_;  // [rows_max, V]
  std::vector<Sequence> sequences_;
};

// Runs a whole sequence in chunks of the given size.
inline void run_in_chunks(ModelRun& run, int sequence, const std::vector<int32_t>& tokens,
                          size_t chunk) {
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min(at + chunk, tokens.size());
    run.step({{sequence,
               {tokens.begin() + static_cast<int64_t>(at),
                tokens.begin() + static_cast<int64_t>(end)}}});
  }
}

}  // namespace roost::testing
