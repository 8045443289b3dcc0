// The weights of a DFlash or DFlash2 drafter (docs/DRAFTER.md, tensors).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "weights/drafter_config.h"
#include "weights/weights.h"

namespace roost {

// The dynamic convolution around one sublayer; version 2 only.
struct DraftConvWeights {
  Tensor base;          // [2, Kc, h] f32: side, tap, channel
  QuantMatrix dynamic;  // [2·Kc·G, h]
};

struct DrafterLayerWeights {
  Tensor input_norm, post_norm;  // [h] f32
  QuantMatrix q, k, v, o;        // [nq·d, h], [nkv·d, h], [nkv·d, h], [h, nq·d]
  Tensor q_norm, k_norm;         // [d] f32
  GatedMlp mlp;
  DraftConvWeights attention_conv, mlp_conv;
};

struct DrafterWeights {
  DrafterConfig config;
  std::shared_ptr<const Checkpoint> checkpoint;
  QuantMatrix fc;            // [h, taps·target_hidden]
  Tensor hidden_norm, norm;  // [h] f32
  std::vector<DrafterLayerWeights> layers;
  QuantMatrix selector_hidden;         // [R, h]; version 2 only, as the codebooks
  QuantMatrix predecessor, successor;  // [V, R]

  std::vector<Buffer> owned;
  size_t bytes_mapped = 0, bytes_owned = 0;
  // Of every byte of the weights and of what the configuration says: two drafters that draft
  // differently differ here. Stored with what the drafter has computed.
  Hash128 identity;
};

// What becomes of matrices that the file does not quantize.
enum class DrafterWidth : uint8_t { kAsPublished, kFourBits };

// Reads folder/config.json and its model*.safetensors and checks that the drafter fits the target.
// Refuses by name; checkpoint.tensor_value for a weight that is not finite. kFourBits: projections
// become affine codes of 4 bits in groups of 64 (docs/DRAFTER.md, tensors), where their width is a
// multiple of that; norms, kernels and codebooks stay.
Result<DrafterWeights> load_drafter(const std::string& folder, const ModelWeights& target,
                                    DrafterWidth width = DrafterWidth::kAsPublished);

}  // namespace roost
