// A synthetic checkpoint that lies in memory instead of a folder.
#pragma once

#include <map>

#include "weights/checkpoint.h"
#include "weights/synthetic.h"

namespace roost {

// What upload_weights brings to a device need not be anywhere else: the large tensors (codes,
// scales and biases) are places that nobody has touched, and are made on the device; with is_filled
// they are made here too. The small ones always are.
class SyntheticMemory {
 public:
  static Result<SyntheticMemory> create(const SyntheticOptions& options, bool is_filled);

  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  const ModelConfig& config() const { return config_; }
  uint64_t seed() const { return seed_; }

  // The tensor that a byte of the checkpoint belongs to, and how far behind its start; null: none.
  struct Place {
    const SyntheticTensor* tensor = nullptr;
    uint64_t offset = 0;
  };
  Place find(const std::byte* byte) const;

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  ModelConfig config_;
  uint64_t seed_ = 0;
  std::map<const std::byte*, SyntheticTensor> tensors_;  // by their first byte
};

}  // namespace roost
