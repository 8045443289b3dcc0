// The main of the test programs that run on a card: names it, and lets every test fail behind which
// it is lost.
#include <gtest/gtest.h>

#include <cstdio>

#include "device/cuda/loss.h"
#include "device/cuda/stream.h"
#ifdef ROOST_CONTRACT_CUDA
#include "tests/contract/contract.h"
#endif

namespace {

class CardIsThere final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    if (const auto& loss = roost::cuda::card_loss()) ADD_FAILURE() << to_string(*loss);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new CardIsThere);
  std::printf("card: %s\n", roost::cuda::card_name().c_str());
#ifdef ROOST_CONTRACT_CUDA
  // How near the kernels came to their bounds.
  roost::contract::note_taker() = [](const std::string& note) {
    std::printf("             %s\n", note.c_str());
  };
#endif
  return RUN_ALL_TESTS();
}
