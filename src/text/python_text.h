// What Python's str does, on UTF-8: places count code points, blanks are Python's.
// A byte that is not part of well-formed UTF-8 counts as one code point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace roost {

bool is_python_space(char32_t code_point);

size_t first_point_bytes(std::string_view text);  // text must not be empty
size_t count_points(std::string_view text);
// The byte at which the i-th code point begins; the end if there are no more.
size_t offset_of_point(std::string_view text, size_t i);
// The n code points first, first + step, …, all of which exist.
std::string pick_points(std::string_view text, size_t first, int64_t step, size_t n);

// Without characters: blanks are stripped.
std::string_view strip(std::string_view text, std::optional<std::string_view> characters,
                       bool left = true, bool right = true);

// maxsplit below 0: no limit. separator must not be empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t maxsplit);
std::vector<std::string_view> split_at_blanks(std::string_view text, int64_t maxsplit);
std::vector<std::string_view> split_lines(std::string_view text);

// How often `old` occurs without overlap; an empty one occurs around each code point.
size_t count_occurrences(std::string_view text, std::string_view old);
// Replaces the first n_max occurrences.
std::string replace(std::string_view text, std::string_view old, std::string_view by, size_t n_max);

// Title case of the template filter of that name: a word begins after blanks, '-' and brackets.
std::string title_words(std::string_view text);

void append_repr(std::string_view text, std::string& out);  // quoted and escaped as Python source

// A number as int() and float() read it, blanks around and '_' between digits allowed.
// parse_int gives the digits in canonical spelling: any length, no leading zeros, '-' if negative.
std::optional<std::string> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);

std::string float_repr(double d);  // "1.0", "1e-05", "inf", "nan"

}  // namespace roost
