// The contract tests of all ops on the card: names the card, then each test as it runs, with how
// near the kernels came to their bounds.
#include <gtest/gtest.h>

#include <cstdio>

#include "device/cuda/stream.h"
#include "tests/contract/contract.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::printf("card: %s\n", roost::cuda::card_name().c_str());
  roost::contract::note_taker() = [](const std::string& note) {
    std::printf("             %s\n", note.c_str());
  };
  return RUN_ALL_TESTS();
}
