#include "apps/machine.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

TEST(Machine, the_cpu_reads_weights_where_they_are) {
  const Result<Machine> machine = Machine::open("cpu", 1);
  ASSERT_TRUE(machine);
  EXPECT_TRUE(machine->is_cpu());
  const auto weights = std::make_shared<const ModelWeights>();
  EXPECT_EQ(machine->place(weights, nullptr).value(), weights);
}

TEST(Machine, a_device_of_another_name_is_refused) {
  const Result<Machine> machine = Machine::open("abacus", 1);
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().refusal, Refusal::FlagValue);
}

// These tests run on machines without a card: the refusal is the same for a program without the
// kernels.
TEST(Machine, a_card_that_is_not_there_is_refused) {
  const Result<Machine> machine = Machine::open("cuda", 1);
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().refusal, Refusal::DeviceMissing);
}

}  // namespace
}  // namespace roost
