#!/usr/bin/env python3
"""Writes docs/METRICS.md from src/server/metrics.def; with --check says whether it is stale."""
import re
import sys

from generated_page import write_or_check
from source_files import ROOT

TABLE = ROOT / "src/server/metrics.def"
PAGE = ROOT / "docs/METRICS.md"
ROW = re.compile(r'^ROOST_METRIC\(\s*(\w+),\s*"(\w*)",\s*k(\w+),\s*"([\w,]*)",\s*"(.*)"\)\s*$')
KINDS = {"Counter": "counter", "Gauge": "gauge", "TimesF": "histogram", "TimesI": "histogram",
         "TimesL": "histogram", "Tokens": "histogram"}
HEAD = """# Metrics

`GET /metrics` answers in the Prometheus text format 0.0.4. Every metric carries `model_name`; those
under the names that dashboards know also `engine="0"`, and `--metrics-compat none` leaves them out.
Durations are in seconds. No label takes a value from a request.

Made by `tools/make_metrics_md.py` from `src/server/metrics.def`; not edited by hand.

| name | type | also as | what |
|---|---|---|---|
"""


def page():
    lines = []
    for number, line in enumerate(TABLE.read_text(encoding="utf-8").splitlines(), 1):
        match = ROW.match(line)
        if match:
            _, own, kind, compatible, what = match.groups()
            name = f"`roost_{own}`" if own else ""
            others = ", ".join(f"`vllm:{one}`" for one in compatible.split(",") if one)
            lines.append(f"| {name} | {KINDS[kind]} | {others} | {what} |")
        elif line.startswith("ROOST_METRIC"):
            raise SystemExit(f"{TABLE.name}:{number}: not a row that this tool can read")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), "make_metrics_md.py"))
