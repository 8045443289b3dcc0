#include "device/arena.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace roost {
namespace {

TEST(Arena, pieces_are_aligned_and_do_not_overlap) {
  Arena arena(4096);
  const Tensor a = arena.tensor(DType::kBF16, {3, 5});
  const Tensor b = arena.tensor(DType::kF32, {7});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % Arena::kAlign, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % Arena::kAlign, 0u);
  EXPECT_GE(b.data, a.data + a.n_bytes());
}

TEST(Arena, a_scope_gives_back_what_was_taken_in_it) {
  Arena arena(1024);
  for (int i = 0; i < 100; ++i) {
    const Arena::Scope scope(arena);
    arena.tensor(DType::kF32, {200});
  }
  EXPECT_EQ(arena.n_used_max(), 800u);
}

TEST(ArenaDeathTest, running_out_is_a_bug) {
  Arena arena(128);
  EXPECT_DEATH(arena.tensor(DType::kF32, {100}), "bug at");
}

TEST(Buffer, starts_on_a_page_and_is_zero) {
  const Buffer buffer(10'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
  for (size_t i = 0; i < buffer.n_bytes(); ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
}

}  // namespace
}  // namespace roost
