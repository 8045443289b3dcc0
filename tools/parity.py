"""Teacher-forced agreement of roost's CPU backend with mlx-lm, both fed the same tokens.

    python tools/parity.py --tool build/release/logits_tool --model models/fledgling --out docs/measurements/parity-fledgling.json
    python tools/parity.py --tool build/release/logits_tool --model /tmp/35b4 --synthetic --out docs/measurements/parity-35b-a3b.json

Needs mlx (CPU) and mlx-lm from PyPI; run by hand. mlx-lm runs in float32 (set_dtype): its bf16 CPU product sums in
bf16 and is no reference. Its quantized matrices outside the experts are dequantized to float32 first (mx.dequantize):
the same numbers, and a BLAS multiplies them a hundred times as fast as the CPU's quantized product. Six kinds of prompt, at least 256 positions each. Every position where the first choice
differs is listed with both sides' best two and their leads.

Bars. A trained model: first choices equal at >= 98 % of the positions, no miss where the reference's lead exceeds 0.5.
A model of random weights (--synthetic), which has no leads: median relative RMS error of the logit rows <= 2 %, no miss
whose reference lead exceeds four times that row's RMS error.
"""
import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "fledgling"))
KINDS = ("count", "arith", "json", "prose", "tools", "recall")
POSITIONS_PER_KIND = 260


def conversations(kind):
    """Endless seeded conversations of one kind, as (prompt, answer) texts."""
    import data  # the generator that trained Fledgling

    template = data.environment(os.path.join(HERE, "..", "models", "fledgling", "chat_template.jinja"))
    r = random.Random(f"parity {kind}")
    while True:
        yield data.render(template, data.sample(r, kind))


def prompts(model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    out = []
    for kind in KINDS:
        n = 0
        for rendered in conversations(kind):
            ids = tokenizer.encode("".join(rendered), add_special_tokens=False).ids
            out.append((kind, ids))
            n += len(ids)
            if n >= POSITIONS_PER_KIND:
                break
    return out


def reference_logits(model, ids):
    import mlx.core as mx

    logits = model(mx.array([ids]))[0].astype(mx.float32)
    mx.eval(logits)
    return np.array(logits)


def load_reference(path):
    import mlx.core as mx
    import mlx.nn as nn
    from pathlib import Path
    from mlx.utils import tree_unflatten
    from mlx_lm.utils import load_model

    def dequantized(module):
        out_width, in_width = module.scales.shape[0], module.scales.shape[1] * module.group_size
        linear = nn.Linear(in_width, out_width, bias=False)
        linear.weight = mx.dequantize(module.weight, module.scales, module.biases, module.group_size, module.bits)
        mx.eval(linear.weight)
        return linear

    mx.set_default_device(mx.cpu)
    model, _ = load_model(Path(path))
    model.set_dtype(mx.float32)
    linears = [(name, dequantized(m)) for name, m in model.named_modules() if isinstance(m, nn.QuantizedLinear)]
    model.update_modules(tree_unflatten(linears))
    return model


def best_two(row):
    top = np.argpartition(row, -2)[-2:]
    top = top[np.argsort(-row[top], kind="stable")]
    return [int(top[0]), int(top[1])], float(row[top[0]] - row[top[1]])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tool", required=True)
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--synthetic", action="store_true")
    a = ap.parse_args()
    import mlx.core as mx
    import mlx_lm

    vocabulary = json.load(open(os.path.join(a.model, "config.json")))["text_config"]["vocab_size"]
    todo = prompts(a.model)
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + "/ids", "wb") as f:
            for _, ids in todo:
                np.array([len(ids)] + ids, "<i4").tofile(f)
        subprocess.run([a.tool, a.model, tmp + "/ids", tmp + "/logits"], check=True)
        reference = load_reference(a.model)
        kinds = {k: {"positions": 0, "equal": 0} for k in KINDS}
        errors, misses, offset = [], [], 0
        for prompt_idx, (kind, ids) in enumerate(todo):
            ours = np.memmap(tmp + "/logits", "<f4", "r", offset, (len(ids), vocabulary))
            offset += len(ids) * vocabulary * 4
            theirs = reference_logits(reference, ids)
            for t in range(len(ids)):
                error = float(np.sqrt(np.mean((ours[t] - theirs[t]) ** 2)))
                errors.append(error / float(np.sqrt(np.mean(theirs[t] ** 2))))
                have, our_lead = best_two(ours[t])
                want, lead = best_two(theirs[t])
                kinds[kind]["positions"] += 1
                kinds[kind]["equal"] += have[0] == want[0]
                if have[0] != want[0]:
                    misses.append({"kind": kind, "prompt": prompt_idx, "position": t, "ours": have, "our_lead": our_lead,
                                   "reference": want, "reference_lead": lead, "row_rms_error": error})
    n = sum(k["positions"] for k in kinds.values())
    n_equal = sum(k["equal"] for k in kinds.values())
    worst = max((m["reference_lead"] / (m["row_rms_error"] if a.synthetic else 1) for m in misses), default=0.0)
    passed = (np.median(errors) <= 0.02 and worst <= 4) if a.synthetic else (n_equal / n >= 0.98 and worst <= 0.5)
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    report = {"command": " ".join(["python", *sys.argv]), "commit": commit, "date": datetime.date.today().isoformat(), "reference": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, float32",
              "machine": platform.machine(), "positions": n, "top1_equal": n_equal / n, "kinds": kinds,
              "median_relative_rms_error": float(np.median(errors)), "largest_relative_rms_error": float(np.max(errors)),
              "worst_miss": worst, "worst_miss_unit": "row RMS errors" if a.synthetic else "logits", "passed": bool(passed), "misses": misses}
    json.dump(report, open(a.out, "w"), indent=1)
    print({k: v for k, v in report.items() if k != "misses"}, f"{len(misses)} misses")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
