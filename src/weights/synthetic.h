// Random weights of a published geometry: the same bits on disk and on a card.
//
// Every value is a function of (seed, tensor, place), made of 64-bit integer steps and single f32
// products, so that a card makes the same bits as the disk: docs/MODEL.md, synthetic weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "weights/config.h"

namespace roost {

// Counter hash behind every synthetic word.
uint64_t synthetic_word(uint64_t seed, uint64_t tensor_id, uint64_t word_idx);

struct SyntheticOptions {
  std::string shape;     // "tiny", "27b", "35b-a3b", "ornith-122b"
  int64_t n_layers = 0;  // 0: the shape's own
  int bits = 4;
  int group = 64;
  uint64_t seed = 1;
  bool has_experts = true;  // tiny only: false makes the dense form
  int64_t n_heads = 0;      // tiny only: query heads (2 KV heads); 0: 16
  int64_t n_shards = 1;     // tiny only: a module may be split over shards
};

// The config.json of such a checkpoint; refuses flag.value for an unknown shape or width.
Result<json::Value> synthetic_config(const SyntheticOptions& options);

enum class SyntheticKind : uint8_t { kCodes, kScales, kBiases, kNorm, kConvTaps, kALog, kDtBias };

struct SyntheticTensor {
  std::string name;  // in the file
  SyntheticKind kind = SyntheticKind::kCodes;
  DType dtype = DType::kBF16;
  Shape shape;
  uint64_t id = 0;  // of its hash words
  float base = 0;   // scales, biases and conv taps
  int bits = 0;     // biases: of the codes
  uint64_t n_bytes() const { return static_cast<uint64_t>(shape.n_elements()) * size_of(dtype); }
};

// Every tensor of the checkpoint in the order of the model's parameters.
Result<std::vector<SyntheticTensor>> synthetic_tensors(const SyntheticOptions& options);

// Bytes [first_byte, first_byte + out.size()) of a tensor; first_byte is a multiple of 64.
void fill_synthetic(const SyntheticTensor& tensor, uint64_t seed, uint64_t first_byte,
                    std::span<std::byte> out);

// Writes config, weights (as a stream, a few MiB in memory at a time), tokenizer and template into
// an existing or new folder. fledgling_folder: where Fledgling's tokenizer.json and template lie.
Result<void> write_synthetic_checkpoint(const SyntheticOptions& options,
                                        const std::string& fledgling_folder,
                                        const std::string& folder);

}  // namespace roost
