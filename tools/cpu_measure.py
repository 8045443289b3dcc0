#!/usr/bin/env python3
"""The CPU's figures: decode and prompt of a synthetic 35b-a3b of 8 layers as shares of the machine's
own limits, and the time from start to the first token of the bundled model.

Usage: tools/cpu_measure.py [--program build/release/roost] [--model FOLDER] [--out docs/measurements/cpu.json]

FOLDER: what `roost synth 35b-a3b FOLDER --layers 8` wrote; without it one is written to a temporary
place (5 GB). Run by hand on an idle machine. Each run of the bench interleaves the read loop with
the steps; medians of the runs are reported, and every run beside them.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
AT_LEAST = {"layers_share_of_bandwidth": 0.60, "head_share_of_bandwidth": 0.60,
            "prompt_share_of_fma_peak": 0.35}
FIRST_TOKEN_SECONDS_MAX = 1.0
BENCH_RUNS, START_RUNS = 9, 9
FIRST_TOKEN = ["run", "models/fledgling", "-p", "Hello", "--max-tokens", "1", "--temperature", "0"]


def first_token_seconds(program: str) -> float:
    """Wall time of a process that loads the bundled model, says one token and ends."""
    begin = time.monotonic()
    subprocess.run([program, *FIRST_TOKEN], cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=str(ROOT / "build/release/roost"))
    parser.add_argument("--model")
    parser.add_argument("--out", default=str(ROOT / "docs/measurements/cpu.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model
        if model is None:
            model = scratch + "/35b-a3b"
            subprocess.run([arguments.program, "synth", "35b-a3b", model, "--layers", "8"],
                           check=True)
        runs = []
        for _ in range(BENCH_RUNS):
            bench = subprocess.run([arguments.program, "bench", model, "--json"], check=True,
                                   capture_output=True)
            runs.append(json.loads(bench.stdout))
    starts = [first_token_seconds(arguments.program) for _ in range(START_RUNS)]
    medians = {key: statistics.median(run[key] for run in runs)
               for key, value in runs[0].items() if isinstance(value, (int, float))}
    medians["first_token_seconds"] = statistics.median(starts)
    bars = {key: {"bar": bar, "median": medians[key], "passed": medians[key] >= bar}
            for key, bar in AT_LEAST.items()}
    bars["first_token_seconds"] = {
        "bar": FIRST_TOKEN_SECONDS_MAX, "median": medians["first_token_seconds"],
        "passed": medians["first_token_seconds"] < FIRST_TOKEN_SECONDS_MAX}
    report = {
        "machine": runs[0]["backend"],
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                                 capture_output=True, text=True).stdout.strip(),
        "command": "roost synth 35b-a3b DIR --layers 8; roost bench DIR --json; roost "
                   + " ".join(FIRST_TOKEN),
        "bars": bars,
        "medians": medians,
        "bench_runs": runs,
        "first_token_seconds": starts,
    }
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump(report, out, indent=1)
        out.write("\n")
    print(json.dumps(bars, indent=1))
    raise SystemExit(0 if all(bar["passed"] for bar in bars.values()) else 1)


if __name__ == "__main__":
    main()
