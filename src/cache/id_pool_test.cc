#include "cache/id_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace roost {
namespace {

TEST(IdPool, hands_out_each_id_once_until_it_is_given_back) {
  IdPool pool(5);
  std::set<int32_t> ids;
  while (const auto id = pool.take()) ids.insert(*id);
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.n_free(), 0);
  pool.give_back(3);
  EXPECT_EQ(pool.take(), 3);
  EXPECT_EQ(pool.take(), std::nullopt);
}

TEST(IdPoolDeathTest, giving_back_twice_is_a_bug) {
  IdPool pool(2);
  const int32_t id = *pool.take();
  pool.give_back(id);
  EXPECT_DEATH(pool.give_back(id), "bug at");
}

}  // namespace
}  // namespace roost
