// What a card died of.
#pragma once

#include <optional>

#include "base/result.h"

namespace roost::cuda {

// The first failure of a call of the CUDA runtime. After an asynchronous error nothing on the card
// can be trusted and every later call fails, so whoever drives the card asks (Device::loss) before
// believing what came back. Of the process, as the runtime's own state is; for the one thread that
// drives the card.
inline std::optional<Error>& card_loss() {
  static std::optional<Error> loss;
  return loss;
}

}  // namespace roost::cuda
