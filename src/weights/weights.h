// The weights of the text model, resolved from a checkpoint: which tensor is which matrix.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/config.h"

namespace roost {

struct FullAttentionWeights {
  QuantMatrix q, k, v, o;  // [nh·2·D, h], [nkv·D, h], [nkv·D, h], [h, nh·D]
  Tensor q_norm, k_norm;   // [D] f32, the factors themselves
};

struct GatedDeltaWeights {
  QuantMatrix qkv, z, b, a, out;  // [C, h], [Vd, h], [Hv, h], [Hv, h], [h, Vd]
  Tensor conv;                    // [C, 4] f32
  Tensor a_log, dt_bias;          // [Hv] f32
  Tensor norm;                    // [Dv] f32
};

struct MoeWeights {
  QuantMatrix router;             // [E, h]
  QuantMatrix shared_gate;        // [1, h]
  std::vector<GatedMlp> experts;  // E
  GatedMlp shared;                // gate does not exist when there is no shared expert
};

struct LayerWeights {
  bool is_full_attention = false;
  Tensor input_norm, post_norm;    // [h] f32, the factors themselves
  FullAttentionWeights attention;  // when is_full_attention
  GatedDeltaWeights delta;         // otherwise
  GatedMlp mlp;                    // dense models
  MoeWeights moe;                  // routed models
};

// Borrows from the checkpoint what can be used where it lies (affine codes, bf16 and f32 matrices);
// owns what was converted (norms, f16 matrices and scales, all small vectors as f32).
struct ModelWeights {
  ModelConfig config;
  std::shared_ptr<const Checkpoint> checkpoint;
  QuantMatrix embedding, head;  // [V, h]; head = embedding when tied
  Tensor final_norm;            // [h] f32
  std::vector<LayerWeights> layers;

  std::vector<Buffer> owned;
  size_t bytes_mapped = 0, bytes_owned = 0;
  std::vector<std::string> left_out;  // names of the tensors that the text model does not use
  bool is_text_only = true;           // a vision tower is not in the files
};

// Finds every weight under any of the family's names, checks shapes and widths, converts what must
// be. Refuses by name.
Result<ModelWeights> load_weights(std::shared_ptr<const Checkpoint> checkpoint, ModelConfig config);

// Bytes that one decoded row must read: all matrices but the embedding, K of E experts. head stands
// apart: rows whose token nobody wants do not read it.
struct ActiveBytes {
  size_t layers = 0, head = 0;
  size_t one_expert = 0;           // of one layer; 0 for dense models
  double flop_layers_per_row = 0;  // 2 per active weight, without the head
};
ActiveBytes active_bytes(const ModelWeights& weights);

}  // namespace roost
