#!/usr/bin/env python3
"""Checks docs/PROOF.tsv: one row for each claim, with the test or command that proves it.

The second column holds one command, or several of the others separated by "; ":
  Suite.name                     a GoogleTest test, as in the source
  tests/e2e/file.py::test_name   a pytest test
  tests/…, tools/…, .ci/…        a script that ./check runs, or a program run by hand
  $ command                      a command line that must end with status 0
A cell that begins with "?" is a proposal: the claim is open. It fails under --closed only.

Fails on tests that do not exist, are disabled or were skipped, and on empty cells.
  --results FOLDER   also read the reports of a run: a named test, oracle or corpus of a fuzz target
                     must have run and passed
A measurement of docs/measurements/ that says whether it passed must say yes.
  --run BUILD        run the rows that are cheap again (tests and commands) on the programs of BUILD
  --closed           open rows are faults
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from count_tests import gtest_name, junit_cases
from source_files import ROOT, read_text, source_files

PROOF = "docs/PROOF.tsv"
COLUMNS = ["sentence", "test or command", "figure", "date", "commit"]
GTEST = re.compile(r"^\s*(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+),\s*(\w+)\s*\)",
                   re.MULTILINE)
COMMAND_SECONDS_MAX = 600


def rows():
    lines = (ROOT / PROOF).read_text(encoding="utf-8").splitlines()
    if lines[0].split("\t") != COLUMNS:
        raise SystemExit(f"{PROOF}: the first line must be: {', '.join(COLUMNS)}")
    for number, line in enumerate(lines[1:], 2):
        yield number, line.split("\t")


def gtests():
    """Suite.name to what stands in the way of it: "" or a reason."""
    found = {}
    for file in source_files():
        if file.suffix != ".cc" or file.parts[0] not in ("src", "tests"):
            continue
        text = read_text(file) or ""
        for match in GTEST.finditer(text):
            _, suite, name = match.groups()
            disabled = "DISABLED_" in suite + name
            plain = f"{suite}.{name}".replace("DISABLED_", "")
            found[plain] = f"is disabled in {file}" if disabled else ""
    return found


def pytest_fault(reference):
    path, _, name = reference.partition("::")
    if not (ROOT / path).is_file():
        return "there is no such file"
    function = name.split("[")[0].split("::")[-1]
    text = (ROOT / path).read_text(encoding="utf-8")
    match = re.search(rf"((?:^[ \t]*@.*\n)*)^[ \t]*(async )?def {re.escape(function)}\(", text,
                      re.MULTILINE)
    if not match:
        return f"there is no function {function}"
    return "is skipped" if re.search(r"@.*\b(skip|skipif|xfail)\b", match.group(1)) else ""


def reference_fault(reference, tests):
    """What is wrong with one reference of a row, or an empty text."""
    if reference.startswith("$ "):
        return "" if reference[2:].strip() else "is an empty command"
    if "::" in reference:
        return pytest_fault(reference)
    if re.fullmatch(r"\w+\.\w+", reference) and "/" not in reference:
        return tests.get(reference, "there is no such test")
    file = ROOT / reference.split(" ")[0]
    if not file.is_file():
        return "there is no such file"
    if file.suffix == ".json" and json.loads(file.read_text(encoding="utf-8")).get("passed") is False:
        return "has not passed"
    return ""


def run_results(folder):
    """Name of a test to the worst status in the reports of a run."""
    order = ["passed", "skipped", "failed"]
    found = {}
    reports = list(folder.glob("gtest*/*.xml")) + list(folder.glob("pytest*.xml"))
    for report in reports:
        for case, status in junit_cases(report):
            if report.parent == folder:
                path = case.get("classname", "").replace(".", "/") + ".py"
                name = f"{path}::{case.get('name', '').split('[')[0]}"
            else:
                name = gtest_name(case)
            found[name] = max(found.get(name, "passed"), status, key=order.index)
    for report in folder.glob("ctest-*.xml"):  # names of programs: the corpora
        for case, status in junit_cases(report):
            name = case.get("name", "").removesuffix("_replay")
            found[f"tests/fuzz/{name}.cc"] = status
    for counts in folder.glob("*.counts"):
        n_passed, n_failed = re.match(r"(\d+) passed, (\d+) failed", counts.read_text()).groups()
        name = f"tests/oracles/{counts.stem}_oracle.py"
        found[name] = "passed" if int(n_passed) > 0 and n_failed == "0" else "failed"
    return found


def ran_fault(reference, results):
    is_test = ("::" in reference or reference.startswith(("tests/fuzz/", "tests/oracles/"))
               or (re.fullmatch(r"\w+\.\w+", reference) and "/" not in reference))
    if not is_test:
        return ""
    status = results.get(reference.split("[")[0], "not run")
    return "" if status == "passed" else f"was {status}" if status != "not run" else "did not run"


def run_again(references, build):
    """Runs tests and commands; the number of those that fail."""
    n_failed = 0
    names = sorted(r for r in references if re.fullmatch(r"\w+\.\w+", r))
    pattern = ":".join(f"{name}:{name}/*:*/{name}:*/{name}/*" for name in names)
    commands = [[str(program), f"--gtest_filter={pattern}", "--gtest_brief=1"]
                for program in sorted(build.glob("*_test")) if names]
    commands += [["bash", "-c", r[2:]] for r in sorted(references) if r.startswith("$ ")]
    for command in commands:
        done = subprocess.run(command, cwd=ROOT, timeout=COMMAND_SECONDS_MAX, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        shown = command[-1] if command[0] == "bash" else Path(command[0]).name
        print(f"  {'ok    ' if done.returncode == 0 else 'FAILED'} {shown}", flush=True)
        if done.returncode:
            n_failed += 1
            print(done.stdout[-4000:])
    return n_failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--closed", action="store_true")
    options = parser.parse_args()

    tests = gtests()
    results = run_results(options.results) if options.results else None
    faults, open_rows, references, n_rows = [], [], set(), 0
    for number, cells in rows():
        n_rows += 1
        if len(cells) != len(COLUMNS) or not all(cell.strip() for cell in cells):
            faults.append(f"{PROOF}:{number}: needs {len(COLUMNS)} cells, none of them empty")
            continue
        if cells[1].startswith("?"):
            open_rows.append(f"{PROOF}:{number}: open: {cells[0]}")
            continue
        for reference in [cells[1]] if cells[1].startswith("$ ") else cells[1].split("; "):
            references.add(reference)
            fault = reference_fault(reference, tests)
            if not fault and results is not None:
                fault = ran_fault(reference, results)
            if fault:
                faults.append(f"{PROOF}:{number}: {reference}: {fault}")
    if options.closed:
        faults += open_rows
    if faults:
        print("\n".join(faults))
    print(f"{n_rows} claims, {len(open_rows)} open, {len(faults)} faults")
    n_failed = run_again(references, options.run.resolve()) if options.run and not faults else 0
    return bool(faults or n_failed)


if __name__ == "__main__":
    sys.exit(main())
