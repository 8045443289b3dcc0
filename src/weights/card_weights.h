// How a card takes weights in: matrices that its fast kernels multiply with become bricks, and
// synthetic weights are made where they will lie.
#pragma once

#include "device/cuda/card.h"
#include "weights/synthetic_memory.h"
#include "weights/upload.h"

namespace roost {

class CardWeights final : public WeightTaker {
 public:
  // synthetic: whose untouched tensors are made on the card; null: all bytes come from the host.
  CardWeights(cuda::Card& card, const SyntheticMemory* synthetic);

  QuantMatrix layout_of(const QuantMatrix& matrix) const override;
  void take(const QuantMatrix& from, const QuantMatrix& kept) override;

  // Bytes of the checkpoint to a place on the card.
  void bring(std::byte* to, const std::byte* from, size_t n_bytes);

 private:
  void take_bricks(const QuantMatrix& from, const QuantMatrix& kept);

  cuda::Card& card_;
  const SyntheticMemory* synthetic_;
  cuda::DeviceBuffer piece_;  // rows of a matrix on their way to bricks
};

}  // namespace roost
