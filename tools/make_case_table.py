#!/usr/bin/env python3
"""Writes src/text/unicode_case_table.inc from the files of the Unicode character database.

Usage: tools/make_case_table.py [FOLDER] > src/text/unicode_case_table.inc
FOLDER holds UnicodeData.txt, SpecialCasing.txt and DerivedCoreProperties.txt (Debian package
unicode-data: /usr/share/unicode).
"""

import sys
from pathlib import Path

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode")


def rows(name):
    for line in (folder / name).read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield [field.strip() for field in line.split(";")]


def ranges(codes):
    """Consecutive code points as (first, last) pairs."""
    result = []
    for code in sorted(codes):
        if result and result[-1][1] == code - 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def print_rows(items, width=96):
    line = " "
    for item in items:
        if len(line) + len(item) + 1 > width:
            print(line)
            line = " "
        line += " " + item
    print(line)


categories = {}
mappings = []  # (code, upper delta, lower delta, title delta)
first = None
for row in rows("UnicodeData.txt"):
    code, name, category = int(row[0], 16), row[1], row[2]
    if name.endswith(", First>"):
        first = code
    for c in range(first if name.endswith(", Last>") else code, code + 1):
        categories[c] = category
    upper = int(row[12], 16) - code if row[12] else 0
    lower = int(row[13], 16) - code if row[13] else 0
    title = int(row[14], 16) - code if row[14] else upper
    if upper or lower or title:
        mappings.append((code, upper, lower, title))

runs = []  # [first, last, stride, deltas]; a run of every second code point may enclose another
open_runs = {}  # the newest run of each set of deltas
for code, *deltas in mappings:
    run = open_runs.get(tuple(deltas))
    step = code - run[1] if run else 0
    if run and step <= 2 and run[2] in (0, step):
        run[1], run[2] = code, step
        continue
    open_runs[tuple(deltas)] = [code, code, 0, deltas]
    runs.append(open_runs[tuple(deltas)])

special = []
for row in rows("SpecialCasing.txt"):
    if len(row) > 5 and row[4]:
        continue  # conditional: languages, and the final sigma, which the code knows
    code = int(row[0], 16)
    for kind, field in (("kLower", row[1]), ("kTitle", row[2]), ("kUpper", row[3])):
        points = [int(p, 16) for p in field.split()]
        if len(points) > 1:
            points += [0] * (3 - len(points))
            special.append("{0x%X, Case::%s, {0x%X, 0x%X, 0x%X}}," % (code, kind, *points))

derived = {"Cased": set(), "Case_Ignorable": set()}
for row in rows("DerivedCoreProperties.txt"):
    if row[1] in derived:
        low, _, high = row[0].partition("..")
        derived[row[1]].update(range(int(low, 16), int(high or low, 16) + 1))

hidden = {
    c
    for c in range(0x110000)
    if categories.get(c, "Cn") in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs") and c != 0x20
}

print("// Made by tools/make_case_table.py from the Unicode character database. Do not edit.")
print("constexpr CaseRun kCaseRuns[] = {")
print_rows("{0x%X, 0x%X, %d, %d, %d, %d}," % (a, b, max(s, 1), *d) for a, b, s, d in runs)
print("};")
print("constexpr SpecialCase kSpecialCases[] = {")
print_rows(special)
print("};")
for name, codes in (
    ("kCased", derived["Cased"]),
    ("kCaseIgnorable", derived["Case_Ignorable"]),
    ("kNotPrintable", hidden),
):
    print("constexpr CodeRange %s[] = {" % name)
    print_rows("{0x%X, 0x%X}," % tuple(r) for r in ranges(codes))
    print("};")
