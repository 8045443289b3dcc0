#include "device/device.h"

#include <gtest/gtest.h>

#include <cstring>

namespace roost {
namespace {

TEST(HostDevice, takes_zeros_and_moves_bytes_in_order) {
  Device& device = host_device();
  const Buffer a = device.take(100), b = device.take(100);
  for (size_t i = 0; i < 100; ++i) ASSERT_EQ(a.data()[i], std::byte{0});
  char text[] = "rows of a step";
  device.write(a.data(), text, sizeof text);
  text[0] = 'X';  // what was written does not change with it
  device.copy(b.data(), a.data(), sizeof text);
  device.clear(a.data(), 4);
  char back[sizeof text];
  device.read(back, b.data(), sizeof text);
  EXPECT_STREQ(back, "rows of a step");
  device.read(back, a.data(), sizeof text);
  EXPECT_EQ(std::memcmp(back, "\0\0\0\0 of a step", sizeof text), 0);
}

TEST(Arena, hands_out_memory_of_a_device) {
  Arena arena(host_device().take(1024));
  const Arena::Scope scope(arena);
  const Tensor t = arena.tensor(DType::kF32, {16});
  t.as<float>()[15] = 1;
  EXPECT_EQ(arena.n_used_max(), 64u);
}

}  // namespace
}  // namespace roost
