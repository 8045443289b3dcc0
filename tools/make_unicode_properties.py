#!/usr/bin/env python3
"""Makes src/grammar/unicode_properties_table.inc from the Unicode character database.

    python3 tools/make_unicode_properties.py            writes the file
    python3 tools/make_unicode_properties.py --check    exits 1 if it is not what would be written

The database is that of the package `unicode-data` (--ucd names another folder).
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/grammar/unicode_properties_table.inc"


def category_ranges(ucd):
    """{category: [[first, last], …]} of every assigned code point, and Cn of the others."""
    of = ["Cn"] * 0x110000
    begin = None
    for line in (ucd / "UnicodeData.txt").read_text("utf-8").splitlines():
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            begin = code
            continue
        for c in range(begin if name.endswith(", Last>") else code, code + 1):
            of[c] = category
    found = {}
    for c, category in enumerate(of):
        ranges = found.setdefault(category, [])
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return found


def script_ranges(ucd):
    found = {}
    for line in (ucd / "Scripts.txt").read_text("utf-8").splitlines():
        fields = [part.strip() for part in line.split("#")[0].split(";")]
        if len(fields) != 2:
            continue
        first, _, last = fields[0].partition("..")
        found.setdefault(fields[1], []).append([int(first, 16), int(last or first, 16)])
    return found


def aliases(ucd, prefix):
    """{long name: short name} of a property's values."""
    names = {}
    for line in (ucd / "PropertyValueAliases.txt").read_text("utf-8").splitlines():
        fields = [part.strip() for part in line.split("#")[0].split(";")]
        if len(fields) >= 3 and fields[0] == prefix:
            names[fields[2]] = fields[1]
    return names


def joined(ranges):
    out = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1][1] = max(out[-1][1], last)
        else:
            out.append([first, last])
    return out


def make_table(ucd):
    sets = {}
    categories = category_ranges(ucd)
    for name, ranges in categories.items():
        sets[name] = ranges
        sets.setdefault(name[0], []).extend([r[:] for r in ranges])
    for long_name, short_name in aliases(ucd, "gc").items():
        if short_name in sets:
            sets[long_name] = short_name
    short = aliases(ucd, "sc")
    for name, ranges in script_ranges(ucd).items():
        sets["sc=" + name] = ranges
        if short.get(name, name) != name:
            sets["sc=" + short[name]] = "sc=" + name

    flat, rows, place = [], [], {}
    for name in sorted(sets):
        if isinstance(sets[name], str):
            continue
        ranges = joined(sets[name])
        place[name] = (len(flat), len(ranges))
        flat += ranges
    for name in sorted(sets):
        offset, count = place[sets[name] if isinstance(sets[name], str) else name]
        rows.append(f'    {{"{name}", {offset}, {count}}},')
    lines, line = [], "   "
    for first, last in flat:
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    lines.append(line)
    return ("// Ranges of general categories and scripts; made by tools/make_unicode_properties.py.\n"
            "constexpr UnicodeRange kRanges[] = {\n" + "\n".join(lines) + "\n};\n\n"
            "// Sorted by name.\nconstexpr UnicodeSet kSets[] = {\n" + "\n".join(rows) + "\n};\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ucd", type=pathlib.Path, default=pathlib.Path("/usr/share/unicode"))
    arguments = parser.parse_args()
    table = make_table(arguments.ucd)
    if arguments.check:
        if TARGET.read_text("utf-8") != table:
            print(f"{TARGET.relative_to(ROOT)} is not what the database says")
            return 1
        return 0
    TARGET.write_text(table, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
