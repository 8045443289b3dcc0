// Everything of a loaded model that a request needs: the engine, the text side, names and defaults.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/chat_request.h"
#include "server/grammar_store.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace roost {

// Values of sampling fields that a request leaves out.
struct SamplingDefaults {
  double temperature = 1, top_p = 1, min_p = 0;
  double presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  int64_t top_k = 0;
};

// What is told of the drafter beside the model.
struct DrafterFacts {
  std::string id, digest;  // its folder's name; hex, of every byte of its weights
  int64_t block_rows = 0, n_taps = 0;
};

inline constexpr const char* kStateFormat = "f32";  // of the recurrent states

struct ServedModel {
  std::vector<std::string> ids;  // the served id, then its aliases
  std::string digest;            // hex, of the configuration and the tensors' names and shapes
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  std::string template_source, template_sha256, tokenizer_sha256;
  RequestRules rules;
  size_t grammar_bytes_max = limits::kGrammarCacheBytes;
  std::shared_ptr<GrammarStore> grammars;  // of the tokenizer
  std::vector<std::string> added_tokens;   // texts that would be control tokens in a prompt
  std::vector<int32_t> end_tokens;
  ReasoningBudget budget_form;  // how this model's reasoning is closed; without a bound
  SamplingDefaults defaults;
  std::optional<bool> thinking;                // the server's default; absent: the template's
  std::optional<DrafterFacts> drafter;         // none: no drafts
  std::string kv_format = "bf16";              // of K/V pages
  std::map<std::string, std::string> kernels;  // by kind of matrix
  int64_t snapshot_every = 0, chunk_ms = 0;
  std::string cache_folder;  // of what outlasts the process; empty: nothing does
  int64_t context_train = 0, n_parameters = 0, n_bytes = 0;
  int64_t created = 0;                 // Unix seconds of the start
  std::vector<int32_t> canary_tokens;  // of the canary at start
  std::shared_ptr<Engine> engine;      // ends before the text side
};

// "roost-<version>-<first 8 digits of the digest>".
std::string fingerprint_of(const ServedModel& model);

// Fills rules, grammars, added_tokens, budget_form and the template's members from the tokenizer,
// the template and its source.
void derive_rules(ServedModel& model, const std::string& template_source);

// How a request is sampled: its own values, else the defaults; a missing seed is drawn by the
// caller.
SampleParams sample_params_of(const GenerationFields& fields, const SamplingDefaults& defaults,
                              uint64_t seed);

LogitAdjust logit_adjust_of(const GenerationFields& fields, const SamplingDefaults& defaults);

}  // namespace roost
