// Random weights of a published geometry: the same bits on disk and on a card.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/config.h"

namespace roost {

// Counter hash behind every synthetic word: mix(seed, tensor id, word index)   (docs/MODEL.md, synthetic weights).
uint64_t synthetic_word(uint64_t seed, uint64_t tensor_id, uint64_t word_idx);

struct SyntheticOptions {
  std::string shape;       // "tiny", "27b", "35b-a3b", "ornith-122b"
  int64_t n_layers = 0;    // 0: the shape's own
  int bits = 4;
  int group = 64;
  uint64_t seed = 1;
  bool has_experts = true; // tiny only: false makes the dense form
  int64_t n_heads = 0;     // tiny only: query heads (2 KV heads); 0: 16
  int64_t n_shards = 1;    // tiny only: a module may be split over shards
};

// The config.json of such a checkpoint; refuses flag.value for an unknown shape or width.
Result<json::Value> synthetic_config(const SyntheticOptions& options);

// Writes config, weights (as a stream, one tensor in memory at a time), tokenizer and template into
// an existing or new folder. fledgling_folder: where Fledgling's tokenizer.json and template lie.
Result<void> write_synthetic_checkpoint(const SyntheticOptions& options, const std::string& fledgling_folder,
                                        const std::string& folder);

}  // namespace roost
