#include "text/template_value.h"

#include <gtest/gtest.h>

#include "text/template_sort.h"

namespace roost::jinja {
namespace {

TEST(TemplateHeap, values_that_hold_too_much_are_refused_and_give_back_what_they_held) {
  Heap heap;
  const size_t n_bytes_max = 4 * limits::kTemplateOutputBytesMax;
  EXPECT_TRUE(heap.take(n_bytes_max));
  EXPECT_FALSE(heap.take(1));
  EXPECT_FALSE(heap.list({}));
  heap.give_back(1000);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(heap.list({Value::none()})) << i;
  EXPECT_FALSE(heap.string(std::string(1000, 'a')));
}

TEST(TemplateHeap, steps_are_counted_to_their_limit) {
  Heap heap;
  EXPECT_TRUE(heap.spend(limits::kTemplateStepsMax));
  EXPECT_FALSE(heap.spend(1));
}

TEST(TemplateValue, integers_and_floats_compare_exactly) {
  Heap heap;
  const auto equal = [&](const Value& a, const Value& b) { return equals(heap, a, b).value(); };
  const int64_t odd = (int64_t{1} << 53) + 1;
  EXPECT_FALSE(equal(Value::integer(odd), Value::real(0x1p53)));
  EXPECT_TRUE(compare(heap, Value::real(0x1p53), Value::integer(odd)).value() < 0);
  EXPECT_TRUE(compare(heap, Value::integer(INT64_MAX), Value::real(0x1p63)).value() < 0);
  EXPECT_TRUE(equal(Value::boolean(true), Value::real(1)));
  const Value big = heap.big_integer("123456789012345678901").value();
  const Value bigger = heap.big_integer("123456789012345678902").value();
  const Value negative = heap.big_integer("-123456789012345678901").value();
  EXPECT_TRUE(compare(heap, big, bigger).value() < 0);
  EXPECT_TRUE(compare(heap, negative, Value::integer(INT64_MIN)).value() < 0);
  EXPECT_TRUE(compare(heap, Value::integer(5), big).value() < 0);
}

TEST(TemplateSort, is_stable_and_ends_with_the_first_refusal) {
  std::vector<std::pair<int, int>> items = {{2, 0}, {1, 1}, {2, 2}, {1, 3}, {0, 4}};
  const auto by_first = [](const auto& a, const auto& b) -> Result<bool> {
    return a.first < b.first;
  };
  ASSERT_TRUE(merge_sort(items, by_first));
  EXPECT_EQ(items, (std::vector<std::pair<int, int>>{{0, 4}, {1, 1}, {1, 3}, {2, 0}, {2, 2}}));
  const auto refusing = [](const auto&, const auto&) -> Result<bool> { return refuse("no order"); };
  EXPECT_FALSE(merge_sort(items, refusing));
}

}  // namespace
}  // namespace roost::jinja
