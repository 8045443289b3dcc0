#!/usr/bin/env python3
"""Writes docs/REFUSALS.md from src/base/refusals.def; with --check says whether it is stale."""
import re
import sys

from generated_page import write_or_check
from source_files import ROOT

TABLE = ROOT / "src/base/refusals.def"
PAGE = ROOT / "docs/REFUSALS.md"
ROW = re.compile(r'^ROOST_REFUSAL\(\s*(\w+),\s*"([\w.]+)",\s*(\d+),\s*"(.*)"\)\s*$')
HEAD = """# Refusals

Every expected "no" of roost. The code is stable: programs may compare it. Over HTTP a refusal is an
answer with the status below and the code in `error.refusal`; on the command line it is one line on
standard error and a non-zero exit status. The detail that goes with it carries the numbers.

Made by `tools/make_refusals_md.py` from `src/base/refusals.def`; not edited by hand.
"""


def page():
    lines = [HEAD]
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        match = ROW.match(line)
        if match:
            _, code, status, sentence = match.groups()
            lines.append(f"| `{code}` | {status} | {sentence} |")
        elif line.startswith("ROOST_REFUSAL"):
            raise SystemExit(f"{TABLE.name}:{number}: not a row that this tool can read")
        elif line.startswith("//") and number > 2:
            lines.append(f"\n## {line[2:].strip().rstrip('.')}\n")
            lines += ["| code | HTTP status | meaning |", "|---|---|---|"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), "make_refusals_md.py"))
