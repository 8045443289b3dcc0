// Random weights of a published geometry: the same bits on disk and on a card.
//
// Every value is a function of (seed, tensor, place), made of 64-bit integer steps and single f32
// products, so that a card makes the same bits as the disk (docs/MODEL.md, synthetic weights):
//
//   mix(x)          x ^= x>>30; x *= 0xBF58476D1CE4E5B9; x ^= x>>27; x *= 0x94D049BB133111EB; x ^=
//   x>>31 id              FNV-1a, 64 bits, of the tensor's name in the file (biases: of the scales'
//   name) key             mix(mix(seed + G) ^ id), G = 0x9E3779B97F4A7C15 word(i)         mix(key +
//   (i + 1)·G) h(i)            the 16 bits of word(i div 4) from bit 16·(i mod 4) on m(i) 58982 +
//   (h(i)·13107 >> 16): 2^16 times a factor in [0.9, 1.1) r               rounding to bf16, nearest
//   even; f32(…) an exact conversion; base one f32 number a tensor
//
//   codes           the bytes of word(0), word(1), … little-endian: uniform at every width
//   scales[i]       r(base · f32(m(i)))
//   biases[i]       r(scales[i] · f32(-(2^bits - 1)) · 0.5)
//   norms[i]        r(f32(m(i)) · 2^-16)
//   conv taps[i]    r(base · f32(s)), s = the sum of the four 16-bit parts of word(i), less 131070
//   A_log[i]        f32(ln((2u + 1)/8192)), u = word(i) >> 48: the decay rate is uniform in (0, 16)
//   dt_bias[i]      r(ln(e^dt - 1)), dt = 10^(2(u + 0.5)/65536 - 3): the inverse
//                   softplus of a log-uniform step in (1e-3, 1e-1)
//
// A_log and dt_bias are a few numbers a layer and are made on the host, in f64 with the series of
// synthetic_fill.cc; a card takes them from there.
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
