#!/usr/bin/env python3
"""Decode steps and prompts of the published geometries on the card, with random weights made there.

Usage: tools/gpu_measure.py [--program build/cuda/roost] [--out docs/measurements/h200.json] [SHAPE…]

Writes {card, date, commit, command, rows}; each row is {shape, kind, rows, context, ms, floor_ms,
share_of_floor, spread}. ./check gpu comes first: figures of kernels that break a law are worth nothing.
"""

import argparse
import datetime
import json
import subprocess

SHAPES = ["ornith-122b", "35b-a3b", "27b"]
FLAGS = ["--device", "cuda", "--chunk-rows", "2048", "--repetitions", "9", "--json"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/cuda/roost")
    parser.add_argument("--out", default="docs/measurements/h200.json")
    parser.add_argument("--commit", help="of the program, where its repository is elsewhere")
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    arguments = parser.parse_args()
    report = {
        "card": "",
        "date": datetime.date.today().isoformat(),
        "commit": arguments.commit or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, check=True,
            text=True).stdout.strip(),
        "command": " ".join(["roost", "bench", "synth:SHAPE", *FLAGS]),
        "rows": [],
    }
    for shape in arguments.shapes:
        command = [arguments.program, "bench", "synth:" + shape, *FLAGS]
        measured = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        report["card"] = measured["card"]
        report["rows"] += measured["rows"]
    lines = ",\n  ".join(json.dumps(row) for row in report.pop("rows"))
    head = json.dumps(report, indent=1).rstrip("\n}")
    with open(arguments.out, "w", encoding="utf-8") as out:
        out.write(head + ',\n "rows": [\n  ' + lines + "\n ]\n}\n")


if __name__ == "__main__":
    main()
