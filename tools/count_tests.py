#!/usr/bin/env python3
"""Adds up what the test runners of ./check left in a folder of results.

  ctest*.xml          JUnit of ctest: one entry a program
  gtest*/PROGRAM.xml  GoogleTest's own report: the tests of such a program
  gtest*.xml          the same of a program that was run by itself
  pytest*.xml         JUnit of pytest
  *.counts            lines "N passed, N failed[, N skipped]" of other programs
Prints "PASSED FAILED SKIPPED".
"""
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

COUNTS = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")


def junit_cases(path):
    """(name, "passed" | "failed" | "skipped") of each test case of a JUnit file."""
    for case in xml.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            yield case, "failed"
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled") \
                or case.get("result") in ("skipped", "suppressed"):
            yield case, "skipped"
        else:
            yield case, "failed" if case.get("status") == "fail" else "passed"


def gtest_name(case):
    """Suite.name as it stands in the source: without instantiation and parameter."""
    parts = [part for part in case.get("classname", "").split("/") if not part.isdigit()]
    return f"{parts[-1] if parts else ''}.{case.get('name', '').split('/')[0]}"


def count(folder):
    totals = {"passed": 0, "failed": 0, "skipped": 0}

    def add(status, n=1):
        totals[status] += n

    for report in sorted(folder.glob("ctest*.xml")):
        programs = folder / report.stem.replace("ctest", "gtest")
        for case, status in junit_cases(report):
            own = programs / f"{case.get('name')}.xml"
            if not own.is_file():
                add(status)
                continue
            statuses = [inner for _, inner in junit_cases(own)]
            for inner in statuses:
                add(inner)
            # A program that reported and then crashed.
            if status == "failed" and "failed" not in statuses:
                add("failed")
    for report in sorted([*folder.glob("gtest*.xml"), *folder.glob("pytest*.xml")]):
        for _, status in junit_cases(report):
            add(status)
    for report in sorted(folder.glob("*.counts")):
        for match in COUNTS.finditer(report.read_text(encoding="utf-8")):
            for status, n in zip(totals, match.groups(default="0")):
                add(status, int(n))
    return totals


if __name__ == "__main__":
    print(*count(Path(sys.argv[1])).values())
