#!/usr/bin/env python3
"""Makes src/text/unicode_table.cc from the Unicode character database of the system.

    python3 tools/make_unicode_table.py            writes the file
    python3 tools/make_unicode_table.py --check    exits 1 if the file is not what would be written

The database is that of the package `unicode-data` (--ucd names another folder).
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/text/unicode_table.cc"

# The order of CharClass in unicode_table.h.
OTHER, LETTER, MARK, NUMBER, SPACE, NEWLINE = range(6)
CLASS_OF_CATEGORY = {"L": LETTER, "M": MARK, "N": NUMBER}

HEADER = """\
// The class of every code point, as ranges; made by tools/make_unicode_table.py, not by hand.
#include "text/unicode_table.h"

#include <algorithm>
#include <iterator>

namespace roost {
namespace {

// Each entry begins a range: its first code point, and in the low three bits its class. A range
// ends where the next one begins.
// clang-format off
constexpr uint32_t kRanges[] = {
"""

FOOTER = """\
};
// clang-format on

}  // namespace

const std::string_view kUnicodeVersion = "%s";

CharClass char_class_beyond_ascii(char32_t code_point) {
  const uint32_t wanted = static_cast<uint32_t>(code_point) << 3 | 7;
  const auto next = std::upper_bound(std::begin(kRanges), std::end(kRanges), wanted);
  return static_cast<CharClass>(*(next - 1) & 7);
}

}  // namespace roost
"""


def read_classes(ucd):
    classes = [OTHER] * 0x110000
    range_first = None
    for line in (ucd / "UnicodeData.txt").read_text("utf-8").splitlines():
        fields = line.split(";")
        code_point, name, category = int(fields[0], 16), fields[1], fields[2]
        if name.endswith(", First>"):
            range_first = code_point
            continue
        first = range_first if name.endswith(", Last>") else code_point
        range_first = None
        for c in range(first, code_point + 1):
            classes[c] = CLASS_OF_CATEGORY.get(category[0], OTHER)
    for line in (ucd / "PropList.txt").read_text("utf-8").splitlines():
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*; White_Space\b", line)
        if match:
            first = int(match[1], 16)
            for c in range(first, int(match[2] or match[1], 16) + 1):
                assert classes[c] == OTHER, f"U+{c:04X} is a space and something else"
                classes[c] = SPACE
    classes[0x0A] = classes[0x0D] = NEWLINE
    return classes


def read_version(ucd):
    first_line = (ucd / "PropList.txt").read_text("utf-8").splitlines()[0]
    return re.fullmatch(r"# PropList-([0-9.]+)\.txt", first_line)[1]


def render(ucd):
    classes = read_classes(ucd)
    entries = []
    for c, kind in enumerate(classes):
        if c == 0 or kind != classes[c - 1]:
            entries.append(f"0x{c << 3 | kind:x}")
    lines, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 99:
            lines.append(line)
            line = "   "
        line += f" {entry},"
    lines.append(line)
    return HEADER + "\n".join(lines) + "\n" + FOOTER % read_version(ucd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ucd", type=pathlib.Path, default=pathlib.Path("/usr/share/unicode"))
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = render(args.ucd)
    if not args.check:
        TARGET.write_text(text, "utf-8")
        return 0
    if TARGET.read_text("utf-8") != text:
        print(f"{TARGET.relative_to(ROOT)} is not what {args.ucd} gives", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
