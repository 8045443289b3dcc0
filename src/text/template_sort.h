// A stable sort for values: comparing them may be refused, and what they say may be no order at all
// (a float that is not a number), which a standard sort must not see.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/result.h"

namespace roost::jinja {

// comes_before(a, b) gives Result<bool>. The first refusal ends the sort.
template <class T, class ComesBefore>
Result<void> merge_sort(std::vector<T>& items, ComesBefore comes_before) {
  std::vector<T> merged;
  merged.reserve(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle && right < end) {
        ROOST_TRY(const bool is_right_first, comes_before(items[right], items[left]));
        merged.push_back(std::move(items[is_right_first ? right++ : left++]));
      }
      while (left < middle) merged.push_back(std::move(items[left++]));
      while (right < end) merged.push_back(std::move(items[right++]));
    }
    items.swap(merged);
  }
  return {};
}

}  // namespace roost::jinja
