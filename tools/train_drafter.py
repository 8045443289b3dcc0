#!/usr/bin/env python3
"""Trains a DFlash2 drafter for any model that roost serves, from the model's own replies.

    train_drafter.py replies --url http://127.0.0.1:8080 --prompts FILE --out replies.jsonl
    train_drafter.py train --model FOLDER --replies replies.jsonl --out drafter [--taps 1,3,4,6 …]

`replies` asks a running server. FILE: a JSON object a line with `messages` (and further fields of a
chat request, such as `enable_thinking`); each is asked greedily, and once more with --temperature.
A drafter learns the modes that the prompts use: ask with thinking and without.

`train` lets build/release/taps_tool read what the target's layers leave behind over the replies (as
roost itself computes them, from the checkpoint as it is), trains, and measures by the walk
simulation on replies that were held out: the tokens per round that an engine will reach
(docs/DRAFTER.md). It writes nothing, and ends with status 1, unless the walk reaches --gate, and the
walk with the selector that without it.

Only `train` needs torch (any device). The sizes of the drafter have defaults for small targets; for a
target of 27B or more see the published ones: 5 layers, 5 to 8 taps, window 2048, rank 256.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]


# ---- replies -------------------------------------------------------------------------------------

def ask(url, body):
    """(ids of the prompt, ids of the reply, whether it came to its end)."""
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=3600) as answer:
                reply = json.load(answer)
            break
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):  # it loads, or its queue is full
                raise SystemExit(f"{error.code}: {error.read().decode()}") from error
            time.sleep(float(error.headers.get("Retry-After", 1)))
    choice = reply["choices"][0]
    return reply["prompt_token_ids"], choice["token_ids"], choice["finish_reason"] != "length"


def make_replies(a):
    jobs = []
    for number, line in enumerate(open(a.prompts)):
        body = {**json.loads(line), "return_token_ids": True, "max_tokens": a.max_tokens}
        jobs.append({**body, "temperature": 0})
        if a.temperature > 0:
            jobs.append({**body, "temperature": a.temperature, "seed": number})
    n_tokens, begin = 0, time.time()
    with concurrent.futures.ThreadPoolExecutor(a.streams) as pool, open(a.out, "w") as out:
        for prompt, reply, has_ended in pool.map(lambda job: ask(a.url, job), jobs):
            n_tokens += len(reply)
            out.write(json.dumps({"prompt": prompt, "reply": reply, "has_ended": has_ended}) + "\n")
    print(f"{len(jobs)} replies, {n_tokens} tokens in {time.time() - begin:.0f} s")


# ---- training ------------------------------------------------------------------------------------

def default_taps(n_layers, n):
    """Spread over the target's layers, none at the last one."""
    return [n_layers // 2] if n == 1 else [round(1 + i * (n_layers - 4) / (n - 1)) for i in range(n)]


def read_replies(path, end_token, length_max):
    sequences = []
    for line in open(path):
        one = json.loads(line)
        seq = one["prompt"] + one["reply"] + ([end_token] if one["has_ended"] else [])
        if len(seq) <= length_max and len(seq) - len(one["prompt"]) >= 2:
            sequences.append((len(one["prompt"]), seq))
    return sequences


class Data:
    """All sequences one behind the other, with the taps of every token."""

    def __init__(self, sequences, taps, device):
        import torch
        self.n_prompt = torch.tensor([n for n, _ in sequences], device=device)
        self.length = torch.tensor([len(seq) for _, seq in sequences], device=device)
        self.start = self.length.cumsum(0) - self.length
        self.tokens = torch.tensor([t for _, seq in sequences for t in seq], device=device)
        self.taps = taps


def taps_of(a, sequences, taps, shape_hidden, vocabulary):
    """What taps_tool says of the sequences: (taps, embedding, head)."""
    import numpy as np
    import torch
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/ids", "wb") as ids:
            for _, seq in sequences:
                ids.write(np.array([len(seq), *seq], "<i4").tobytes())
        subprocess.run([a.taps_tool, a.model, folder + "/ids", folder, *map(str, taps)], check=True)

        def read(name, width):
            words = np.fromfile(f"{folder}/{name}", np.int16).reshape(-1, width)
            return torch.from_numpy(words).view(torch.bfloat16).to(a.device)
        rows = read("taps", len(taps) * shape_hidden)
        embedding, head = read("embedding", shape_hidden), read("head", shape_hidden)
    assert len(embedding) == len(head) == vocabulary
    return rows, embedding.float(), head.float()


def losses(d, a, data, embedding, head, with_selector):
    """Cross entropy of the rows of random blocks, and of the selector among its candidates."""
    import torch
    import torch.nn.functional as F
    from drafter_net import candidates
    block, device = d.s.block, data.tokens.device
    i = torch.multinomial((data.length - data.n_prompt).clamp(4, 400).float(), a.sequences, replacement=True)
    n, first, start = data.length[i], data.n_prompt[i], data.start[i]
    anchor = first[:, None] + (torch.rand(a.sequences, a.anchors, device=device) * (n - 1 - first)[:, None]).long()
    at = (start[:, None] + torch.arange(int(n.max()), device=device)).clamp(max=len(data.tokens) - 1)
    place = anchor[..., None] + torch.arange(1, block, device=device)  # of the labels
    is_there = place < n[:, None, None]
    label = data.tokens[(start[:, None, None] + place).clamp(max=len(data.tokens) - 1)]
    label = torch.where(is_there, label, torch.full_like(label, -100))
    known = data.tokens[start[:, None] + anchor]
    ids = torch.full((a.sequences, a.anchors, block), d.s.mask_token, device=device)
    ids[..., 0] = known
    rows = d(d.context(data.taps[at].float()), embedding[ids], anchor)[..., 1:, :]
    logits, value, top = candidates(rows, head, d.s.candidates)
    weight = torch.exp(-torch.arange(block - 1, device=device) / a.gamma) * is_there
    of_rows = F.cross_entropy(logits.flatten(0, 2), label.flatten(), ignore_index=-100, reduction="none")
    loss = (of_rows.view(label.shape) * weight).sum() / weight.sum()
    right = ((top[..., 0] == label) & is_there).sum((0, 1)) / is_there.sum((0, 1)).clamp(min=1)
    if not with_selector:
        return loss, right
    # The right token in front is given; rows whose label is no candidate teach nothing.
    previous = torch.cat([known[..., None], label[..., :-1].clamp(min=0)], -1)
    scores = value + d.candidate_selector(rows, previous, top)
    hit = top == label[..., None]
    weight = weight * hit.any(-1)
    of_rows = F.cross_entropy(scores.flatten(0, 2), hit.int().argmax(-1).flatten(), reduction="none")
    return loss + (of_rows.view(label.shape) * weight).sum() / weight.sum().clamp(min=1e-9), right


def walk_of(d, data, embedding, head, rows):
    """Tokens per round of the walk simulation, with the selector and without."""
    import torch
    from drafter_net import draft, walk
    n_tokens, n_rounds = 0, [0, 0]
    with torch.no_grad():
        for start, n, first in zip(data.start.tolist(), data.length.tolist(), data.n_prompt.tolist()):
            seq = data.tokens[start:start + n]
            anchor = torch.arange(first, n - 1, device=seq.device)[None]
            context = d.context(data.taps[start:start + n].float())[None]
            n_tokens += n - 1 - first
            for which, drafts in enumerate(draft(d, context, embedding, head, seq[anchor], anchor, rows)):
                n_rounds[which] += len(walk(seq.tolist(), first, drafts[0].tolist()))
    return [n_tokens / max(n, 1) for n in n_rounds]


def train(a):
    import torch
    sys.path.insert(0, str(ROOT / "tools"))
    from drafter_net import Drafter, Shape, load_drafter, write_drafter
    config = json.load(open(os.path.join(a.model, "config.json")))
    text = config.get("text_config", config)
    n_layers, hidden, vocabulary = (text[k] for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
    taps = [int(t) for t in a.taps.split(",")] if a.taps else default_taps(n_layers, a.n_taps)
    end_token = text["eos_token_id"] if "eos_token_id" in text else config["eos_token_id"]
    end_token = end_token[0] if isinstance(end_token, list) else end_token
    sequences = read_replies(a.replies, end_token, a.length_max)
    random.Random(1).shuffle(sequences)
    n_held = max(len(sequences) // 10, 1)
    if len(sequences) < 2:
        raise SystemExit(f"{a.replies}: {len(sequences)} usable replies, at least 2 are needed")
    mask = a.mask_token if a.mask_token >= 0 else vocabulary - 1
    if any(mask in seq for _, seq in sequences):
        raise SystemExit(f"the mask token {mask} occurs in the replies: name another with --mask-token")
    rows, embedding, head = taps_of(a, sequences, taps, hidden, vocabulary)
    n_held_tokens = sum(len(seq) for _, seq in sequences[:n_held])
    held = Data(sequences[:n_held], rows[:n_held_tokens], a.device)
    data = Data(sequences[n_held:], rows[n_held_tokens:], a.device)
    print(f"{len(sequences) - n_held} replies to learn from, {n_held} held out; taps {taps}", flush=True)

    torch.manual_seed(a.seed)
    d = Drafter(Shape(
        hidden=hidden, vocabulary=vocabulary, target_layers=n_layers, mask_token=mask, taps=tuple(taps),
        layers=a.layers, mlp=a.mlp or 2 * hidden, heads=a.heads, kv_heads=a.kv_heads, head=a.head,
        window=a.window, block=a.block, rank=a.rank)).to(a.device)
    optimizer = torch.optim.AdamW(d.parameters(), lr=a.lr, betas=(.9, .95), weight_decay=.01)
    begin, step = time.time(), 0
    while (done := max((time.time() - begin) / a.seconds, step / a.steps)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = a.lr * min(1, (step + 1) / 50) * (.05 + .95 * .5 * (1 + math.cos(math.pi * done)))
        # The selector joins once the rows know something.
        loss, right = losses(d, a, data, embedding, head, with_selector=done > .4)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if math.isfinite(torch.nn.utils.clip_grad_norm_(d.parameters(), 1.0).item()):
            optimizer.step()
        step += 1
        if step % a.tell_every == 0:
            expected = 1 + right.cumprod(0).sum().item()
            print(f"step {step}, {time.time() - begin:.0f} s: loss {loss.item():.3f}, row 1 right "
                  f"{right[0].item():.2f}, expected accept length {expected:.2f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:  # measured as it will be read, in bf16
        write_drafter(d, folder)
        d = load_drafter(folder).to(a.device).eval()
    walk, without = walk_of(d, held, embedding, head, a.block)
    print(f"walk over held-out replies: {walk:.3f} tokens a round, {without:.3f} without the selector")
    if walk < a.gate or walk < without:
        raise SystemExit(f"below the gate of {a.gate} or below the walk without the selector: nothing is written")
    write_drafter(d, a.out)
    json.dump({"walk": walk, "walk_without_selector": without, "rows": a.block, "steps": step,
               "replies": len(sequences)}, open(os.path.join(a.out, "measured.json"), "w"), indent=1)
    print(f"written to {a.out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("replies")
    p.set_defaults(run=make_replies)
    p.add_argument("--url", required=True)
    p.add_argument("--prompts", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--max-tokens", type=int, default=512)
    p.add_argument("--temperature", type=float, default=0, help="above 0: each prompt is also drawn at it")
    p.add_argument("--streams", type=int, default=8)
    p = commands.add_parser("train")
    p.set_defaults(run=train)
    p.add_argument("--model", required=True)
    p.add_argument("--replies", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--taps-tool", default=str(ROOT / "build/release/taps_tool"))
    p.add_argument("--taps", default="", help="layers, such as 1,3,4,6; default: --n-taps of them, spread")
    p.add_argument("--n-taps", type=int, default=4)
    p.add_argument("--mask-token", type=int, default=-1, help="a token that no text has; default: the last one")
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--mlp", type=int, default=0, help="default: twice the width")
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head", type=int, default=64)
    p.add_argument("--window", type=int, default=256)
    p.add_argument("--block", type=int, default=16)
    p.add_argument("--rank", type=int, default=32)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--steps", type=int, default=100_000)
    p.add_argument("--sequences", type=int, default=32, help="of a step")
    p.add_argument("--anchors", type=int, default=16, help="blocks of a sequence")
    p.add_argument("--length-max", type=int, default=4096)
    p.add_argument("--gamma", type=float, default=7.0, help="how fast later rows count less")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--gate", type=float, default=1.5, help="tokens a round that the walk must reach")
    p.add_argument("--device", default="cpu")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tell-every", type=int, default=50)
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
