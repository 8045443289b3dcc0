// Look-up of property names in the table made from the Unicode character database.
#include "grammar/unicode_properties.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace roost {

namespace {

struct UnicodeRange {
  char32_t first, last;
};

struct UnicodeSet {
  std::string_view name;  // a category, or "sc=" and a script
  size_t first_range, n_ranges;
};

#include "grammar/unicode_properties_table.inc"

std::optional<CodePoints> find(std::string_view name) {
  const auto* row = std::lower_bound(
      std::begin(kSets), std::end(kSets), name,
      [](const UnicodeSet& set, std::string_view wanted) { return set.name < wanted; });
  if (row == std::end(kSets) || row->name != name) return std::nullopt;
  CodePoints out;
  for (size_t i = 0; i < row->n_ranges; ++i) {
    const UnicodeRange& range = kRanges[row->first_range + i];
    out.emplace_back(range.first, range.last);
  }
  return out;
}

}  // namespace

std::optional<CodePoints> unicode_property(std::string_view name) {
  for (const std::string_view prefix : {"gc=", "General_Category="}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    return name.starts_with("sc=") ? std::nullopt : find(name);
  }
  for (const std::string_view prefix : {"sc=", "Script="}) {
    if (name.starts_with(prefix)) return find("sc=" + std::string(name.substr(prefix.size())));
  }
  std::optional<CodePoints> category = find(name);
  return category ? category : find("sc=" + std::string(name));
}

}  // namespace roost
