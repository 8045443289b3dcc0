// Weights of a checkpoint in memory of a device.
#pragma once

#include <functional>

#include "base/result.h"
#include "device/device.h"
#include "weights/drafter.h"
#include "weights/weights.h"

namespace roost {

// How a device takes matrices in: as they lie in the checkpoint, or in an order of its own.
class WeightTaker {
 public:
  explicit WeightTaker(Device& device) : device_(device) {}
  virtual ~WeightTaker() = default;
  Device& device() { return device_; }

  // The matrix as the device will keep it; its pointers mean nothing yet.
  virtual QuantMatrix layout_of(const QuantMatrix& matrix) const { return matrix; }
  // Brings a matrix of the checkpoint to the places that `kept` points to: in its own format or in
  // that of layout_of.
  virtual void take(const QuantMatrix& from, const QuantMatrix& kept);

 private:
  Device& device_;
};

// Called with bytes done and bytes in all, after each layer.
using UploadProgress = std::function<void(size_t n_done, size_t n_all)>;

// All weights on the device, in one piece of memory; nothing of it borrows from `weights`. A tied
// head becomes a matrix of its own, for tables and products may be kept in different orders; the
// embedding table is always kept as in the checkpoint. Experts of a layer lie at equal distances.
// Refuses memory.too_small.
Result<ModelWeights> upload_weights(const ModelWeights& weights, WeightTaker& taker,
                                    const UploadProgress& progress);

// The same for a drafter; its codebooks are tables.
Result<DrafterWeights> upload_drafter(const DrafterWeights& weights, WeightTaker& taker);

}  // namespace roost
