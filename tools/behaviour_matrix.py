#!/usr/bin/env python3
"""Prints the behaviours of the server, row by row and dialect by dialect, from the reports of a run.

A test belongs to row S07 when its name holds "S07_", and to the dialects that its name or parameters name.
tests/behaviours/matrix.tsv lists the rows, where they do not apply and why, and tests of rows whose matter is
decided below the dialects, on token ids.

  pass      a test of this row and dialect ran and passed
  below     no such test, but the row's tests below the dialects passed
  -         does not apply (the reasons stand under the matrix)
  missing   none of these
  FAILED    a test of the row and dialect, or below, failed
Fails if anything failed or is missing, or if a report names a row that is not listed. --results FOLDER: where the reports are.
"""
import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from count_tests import gtest_name, junit_cases
from source_files import ROOT

DIALECTS = ("chat", "completions", "responses", "messages")
ROW = re.compile(r"\b(?:test_)?(S\d\d)_")
ROWS = "tests/behaviours/matrix.tsv"


def rows():
    lines = (ROOT / ROWS).read_text(encoding="utf-8").splitlines()[1:]
    for line in lines:
        row, what, not_applicable, below = line.split("\t")
        reasons = dict(part.split(": ", 1) for part in not_applicable.split("; ") if part != "-")
        yield row, what, reasons, [test for test in below.split("; ") if test != "-"]


def reports(folder):
    """({(row, dialect): Counter of statuses}, {Suite.name: Counter of statuses})."""
    cells, tests = defaultdict(Counter), defaultdict(Counter)
    for report in sorted([*folder.glob("gtest*/*.xml"), *folder.glob("pytest*.xml")]):
        for case, status in junit_cases(report):
            tests[gtest_name(case)][status] += 1
            name = f"{case.get('name', '')} {case.get('value_param') or ''}"
            found = ROW.search(name)
            for dialect in DIALECTS if found else ():
                if re.search(rf"(?<![a-z]){dialect}(?![a-z])", name):
                    cells[found.group(1), dialect][status] += 1
    return cells, tests


def state(cell, below, reasons, dialect):
    if cell["failed"] or any(test["failed"] for test in below):
        return "FAILED"
    if cell["passed"]:
        return "pass"
    if dialect in reasons:
        return "-"
    return "below" if below and all(test["passed"] for test in below) else "missing"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "build/results")
    cells, tests = reports(parser.parse_args().results)
    totals, notes, known = Counter(), [], set()
    print(f"{'row':4} " + " ".join(f"{dialect:12}" for dialect in DIALECTS))
    for row, what, reasons, below in rows():
        known.add(row)
        states = [state(cells[row, dialect], [tests[test] for test in below], reasons, dialect)
                  for dialect in DIALECTS]
        totals.update(states)
        counts = [f"{word} {cells[row, dialect]['passed'] or ''}".strip() if word == "pass" else word
                  for word, dialect in zip(states, DIALECTS)]
        print(f"{row:4} " + " ".join(f"{word:12}" for word in counts) + " " + what)
        notes += [f"{row}, {dialect}: {reason}" for dialect, reason in reasons.items()]
    print("\n- " + "\n- ".join(notes))
    print(f"\n{len(known)} rows x {len(DIALECTS)} dialects: "
          + ", ".join(f"{totals[word]} {word}" for word in ("pass", "below", "-", "missing", "FAILED")))
    strangers = sorted({row for row, _ in cells} - known)
    if strangers:
        print(f"rows that {ROWS} does not list: {', '.join(strangers)}")
    return 1 if totals["FAILED"] or totals["missing"] or strangers else 0


if __name__ == "__main__":
    sys.exit(main())
