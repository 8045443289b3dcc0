// Finds the modules of a model in a checkpoint, whatever their layout, and converts what cannot be
// used where it lies.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/names.h"
#include "weights/quant_config.h"

namespace roost {

// Memory of converted weights: many small vectors share a buffer.
class OwnedWeights {
 public:
  Tensor take(const Shape& shape);  // f32, 64-byte aligned
  size_t n_bytes() const { return n_bytes_; }
  std::vector<Buffer> release() { return std::move(buffers_); }

 private:
  std::vector<Buffer> buffers_;
  size_t used_ = 0;  // of the last buffer
  size_t n_bytes_ = 0;
};

class ModuleReader {
 public:
  // Refuses checkpoint.duplicate_tensor when two names in the files mean the same weight, and
  // checkpoint.unknown_tensor for names that mean none. name_of: which weight a name means; those
  // of ModelPart::kText are read.
  static Result<ModuleReader> create(const Checkpoint& checkpoint, QuantConfig quant,
                                     WeightName (*name_of)(std::string_view));

  // The tensor of a normalized path; null if there is none. Does not count as used.
  const TensorEntry* find(const std::string& path) const;

  // module.weight [n_out, n_in], quantized or not.
  Result<QuantMatrix> matrix(const std::string& module, int64_t n_out, int64_t n_in);
  // module.weight [n_stacked, n_out, n_in]: the matrices under each other, [n_stacked·n_out, n_in].
  Result<QuantMatrix> stack(const std::string& module, int64_t n_stacked, int64_t n_out,
                            int64_t n_in);
  // A tensor that is never quantized, by its full path, as a stack.
  Result<QuantMatrix> plain_stack(const std::string& path, int64_t n_stacked, int64_t n_out,
                                  int64_t n_in);
  // A vector as f32, with `add` added in f32. Refuses values that are not finite.
  Result<Tensor> vector(const std::string& path, int64_t n, float add);
  // The same of any shape, as it is.
  Result<Tensor> numbers(const std::string& path, const Shape& shape);
  // conv1d.weight, [C, 1, 4] in raw files and [C, 4, 1] in converted ones, as [C, 4] f32.
  Result<Tensor> conv_taps(const std::string& path, int64_t n_channels);

  // True for files in the transformers layout, whose norms are zero-centred (docs/MODEL.md, MLX
  // layout): told by the shape of the first convolution.
  Result<bool> is_raw(const std::string& conv_path) const;

  // Text tensors that nothing has asked for are refused; the others are named.
  Result<std::vector<std::string>> left_out() const;

  OwnedWeights& owned() { return owned_; }
  size_t bytes_mapped() const { return bytes_mapped_; }

 private:
  explicit ModuleReader(QuantConfig quant) : quant_(std::move(quant)) {}
  Result<const TensorEntry*> require(const std::string& path, const Shape& shape);
  Result<std::optional<QuantSpec>> spec_of(const std::string& module) const;
  Result<QuantMatrix> plain(const std::string& path, const Shape& shape);
  Result<QuantMatrix> affine(const std::string& module, const QuantSpec& spec, const Shape& shape);
  // Rows as they lie in the file, or converted to f32.
  const std::byte* place(const TensorEntry& entry, DType wanted);
  Result<Tensor> floats(const TensorEntry& entry, const Shape& shape, float add);

  QuantConfig quant_;
  std::map<std::string, const TensorEntry*> text_;  // by normalized path
  std::vector<std::string> other_parts_;            // vision and mtp tensors
  std::set<std::string> used_;                      // paths
  OwnedWeights owned_;
  size_t bytes_mapped_ = 0;
};

}  // namespace roost
