// config.json of a DFlash or DFlash2 drafter: every field that changes the arithmetic is read or
// refused by name (docs/DRAFTER.md, configuration).
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/config.h"
#include "weights/quant_config.h"

namespace roost {

// The widest head that the drafter's attention has.
inline constexpr int64_t kDraftHeadDimMax = 256;

struct DrafterConfig {
  static constexpr int64_t kBlockMax = 16;  // rows of a block, its anchor included
  static constexpr int64_t kTapsMax = 8;
  static constexpr int64_t kCandidatesMax = 64;  // the selector's top k

  // How a layer's rows see the text and each other.
  struct Layer {
    bool is_causal = false;  // a block row sees the block rows up to itself only
    int64_t window = 0;      // row at position p sees context positions > p - window; 0: all
  };

  int version = 2;  // 1: DFlash; 2: DFlash2, with convolutions and a selector
  int64_t hidden = 0, intermediate = 0, vocabulary = 0;
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float norm_eps = 1e-6f;
  double rope_theta = 0;
  std::vector<Layer> layers;
  int64_t n_target_layers = 0;
  int64_t target_hidden = 0;              // width of a tap
  std::vector<int64_t> taps;              // target layers whose outputs are read, ascending
  int64_t block = 0;                      // rows of a block as trained
  int64_t block_rows_max = 0;             // rows of a block to draft at most
  int32_t mask_token = 0;                 // row of the target's embedding
  int64_t conv_taps = 0, conv_group = 0;  // version 2
  int64_t selector_rank = 0, selector_top_k = 16;  // rank 0: no pair scores
  double output_multiplier = 1, softcap = 0;       // softcap 0: off
  QuantConfig quantization;

  int64_t n_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t n_taps() const { return static_cast<int64_t>(taps.size()); }
  int64_t tap_width() const { return n_taps() * target_hidden; }
  int64_t conv_groups() const { return hidden / conv_group; }                  // G
  int64_t conv_coefficients() const { return 2 * conv_taps * conv_groups(); }  // of a row
  // The widest window of any layer; 0 when one layer sees all.
  int64_t window_max() const;
};

// The taps of a version 1 file that names none.
std::vector<int64_t> default_taps(int64_t n_target_layers, int64_t n_layers);

// Refuses config.field with the field's path, drafter.kind, checkpoint.quantization.
Result<DrafterConfig> parse_drafter_config(const json::Value& config);

// Whether the drafter can draft for the target: by geometry, as names prove nothing. Refuses
// drafter.mismatch with both numbers.
Result<void> check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target);

}  // namespace roost
