#!/usr/bin/env python3
"""What drafts gain: every kind of prompt on the bundled model, and drafts that hold with a known
probability on a synthetic 35b-a3b of 8 layers.

Usage: tools/draft_measure.py [--program build/release/draft_speed] [--model FOLDER] [--runs N]
                              [--out docs/measurements/drafts.json] [--commit C]

FOLDER: what `roost synth 35b-a3b FOLDER --layers 8` wrote. Run by hand on an idle machine. A run of
the program draws plain and drafted replies by turns; medians of the runs are reported, and every run
beside them.
"""

import argparse
import csv
import datetime
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RATIO_MIN = 0.97
GAINS, GAIN_MIN = ("count", "code", "prose"), 1.1
OF_PREDICTED_MIN = 0.9
VERIFY_TIMES_MAX = 2.0
CHOOSING_SHARE_MAX = 0.01


def tables_of(arguments: list[str]) -> list[list[dict]]:
    """The program's tables: replies by kind, costs by rows, the verify step, choosing."""
    text = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return [[{key: number(value) for key, value in row.items()}
             for row in csv.DictReader(part.splitlines())] for part in text.strip().split("\n\n")]


def number(text: str):
    try:
        return float(text)
    except ValueError:
        return text


def median_rows(runs: list[list[dict]]) -> list[dict]:
    """One row of the medians for each row of the runs."""
    return [{key: statistics.median(row[key] for row in rows) if isinstance(value, float) else value
             for key, value in rows[0].items()} for rows in zip(*runs)]


def bars_of(model: str, tables: list[list[dict]]) -> dict:
    replies, _, *verified, (choosing,) = tables
    bars = {f"{model}: choosing as a share of a plain step":
            (choosing["share"], choosing["share"] < CHOOSING_SHARE_MAX)}
    for verify, in verified:  # on the CPU
        bars[f"{model}: 16 rows over their FLOP at the FMA peak"] = (
            verify["times"], verify["times"] <= VERIFY_TIMES_MAX)
    for row in replies:
        name = f"{model}, {row['kind']}, {row['drafts']}"
        gains = row["kind"] in GAINS and row["drafts"] == "drafter"
        bars[f"{name}: speed over plain"] = (
            row["ratio"], row["ratio"] > GAIN_MIN if gains else row["ratio"] >= RATIO_MIN)
        if gains:
            share = row["ratio"] / row["predicted"]
            bars[f"{name}: gain over the predicted one"] = (share, share >= OF_PREDICTED_MIN)
    return {name: {"median": round(value, 4), "passed": passed}
            for name, (value, passed) in bars.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/draft_speed"))
    parser.add_argument("--model", help="without it only the bundled model is measured")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commit", help="of the program, where its repository is elsewhere")
    parser.add_argument("--out", default=str(ROOT / "docs/measurements/drafts.json"))
    arguments = parser.parse_args()
    models = {"fledgling": [arguments.program]}
    if arguments.model:
        models["35b-a3b of 8 layers"] = [arguments.program, "--simulate", arguments.model]
    bars, report = {}, {}
    for name, command in models.items():
        runs = [tables_of(command) for _ in range(arguments.runs)]
        medians = [median_rows([run[i] for run in runs]) for i in range(len(runs[0]))]
        bars.update(bars_of(name, medians))
        report[name] = {"medians": medians, "runs": runs}
    commit = arguments.commit or subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=True).stdout.strip()
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump({"date": datetime.date.today().isoformat(), "commit": commit,
                   "command": f"{pathlib.Path(arguments.program).name}; the same --simulate 35b-a3b of 8 layers",
                   "bars": bars, **report}, out, indent=1)
        out.write("\n")
    print(json.dumps(bars, indent=1))
    raise SystemExit(0 if all(bar["passed"] for bar in bars.values()) else 1)


if __name__ == "__main__":
    main()
