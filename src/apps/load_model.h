// A model folder to everything that serving and running need.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/limits.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/served_model.h"

namespace roost {

struct LoadOptions {
  std::string folder;
  std::string device = "cpu";        // or cuda
  std::string template_file;         // empty: the checkpoint's own
  std::vector<std::string> aliases;  // further ids
  std::optional<bool> thinking;
  GenerationDefaults sampling;  // what the operator says instead of the checkpoint
  bool is_strict_model = false;
  EffortBudgets effort_budgets;
  size_t grammar_bytes_max = limits::kGrammarCacheBytes;  // compiled forms of replies
  std::string drafter;       // folder; empty: `drafter` in the model's folder, if there is one
  int64_t drafter_bits = 0;  // 4: quantized when it is read; 0: as published
  EngineOptions engine;      // n_tokens is set from the tokenizer, drafter from the files
};

// Reads configuration, weights, tokenizer and template, starts the engine, and logs each step with
// its time and the memory in use.
Result<std::shared_ptr<ServedModel>> load_model(const LoadOptions& options, const Clock& clock);

// The drafter that is named, or the one beside the model; none, or no drafts wanted: null.
Result<std::shared_ptr<const DrafterWeights>> load_drafter_of(const LoadOptions& options,
                                                              const ModelWeights& target);

// The tokenizer and the template alone: everything but the engine.
Result<std::shared_ptr<ServedModel>> load_text_side(const LoadOptions& options, const Clock& clock);

}  // namespace roost
