#!/usr/bin/env python3
"""What a tree of drafts would gain over a chain: the walk simulation with both, over known replies.

    tree_walk.py [--model FOLDER] [--drafter FOLDER] [--replies FILE]

Without --replies: the ten text answers of tests/golden. FILE: lines of train_drafter.py replies. Needs
torch, and build/release/taps_tool for what the target's layers leave behind.

A chain of n rows verifies the walk's first n - 1 tokens. A tree of n rows verifies n - 1 nodes, the
likeliest by the product of softmax(score / 1.5) along their paths (at most 4 children a node), out of the
same block of 16 rows; the round goes down from the anchor as far as a child is the target's token. The
figures are tokens per round: what a tree's rows cost is another matter (docs/decisions).
"""
import argparse
import collections
import heapq
import json
import math
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from drafter_net import candidates, load_drafter  # noqa: E402
from train_drafter import taps_of  # noqa: E402

CHILDREN, TAU = 4, 1.5


class Lattice:
    """The candidates of one block: scores of row j behind a chosen token."""

    def __init__(self, d, y, head, anchor):
        self.d, self.y, self.anchor = d, y, anchor
        _, self.value, self.top = candidates(y, head, d.s.candidates)

    def scores(self, j, previous):
        pair = self.d.candidate_selector(self.y[j], torch.tensor(previous), self.top[j])
        return (self.value[j] + pair).tolist(), self.top[j].tolist()

    def chain(self, n):
        out, previous = [], self.anchor
        for j in range(n):
            score, ids = self.scores(j, previous)
            previous = ids[max(range(len(ids)), key=lambda i: score[i])]
            out.append(previous)
        return out

    def tree(self, n):
        """Children of every node by path of tokens, n nodes in all."""
        nodes, heap, count = collections.defaultdict(set), [], 0
        def expand(path, cost):
            if len(path) == len(self.y):
                return
            score, ids = self.scores(len(path), path[-1] if path else self.anchor)
            scaled = [s / TAU for s in score]
            largest = max(scaled)
            total = largest + math.log(sum(math.exp(s - largest) for s in scaled))
            best = sorted(range(len(ids)), key=lambda i: -scaled[i])[:CHILDREN]
            for i in best:
                heapq.heappush(heap, (cost + total - scaled[i], path + (ids[i],)))
        expand((), 0.0)
        while heap and count < n:
            cost, path = heapq.heappop(heap)
            nodes[path[:-1]].add(path[-1])
            count += 1
            expand(path, cost)
        return nodes


def held_by_chain(drafts, rest):
    n = 0
    while n < min(len(drafts), len(rest)) and drafts[n] == rest[n]:
        n += 1
    return n


def held_by_tree(nodes, rest):
    path = ()
    while len(path) < len(rest) and rest[len(path)] in nodes[path]:
        path += (rest[len(path)],)
    return len(path)


def golden_replies():
    for answer in json.load(open(ROOT / "tests/golden/golden.json"))["continuations"]:
        if not answer["name"].startswith("picture"):
            yield answer["name"], len(answer["prompt_ids"]), answer["prompt_ids"] + answer["ids"]


def replies_of(path):
    for line in open(path):
        one = json.loads(line)
        yield one.get("kind", "all"), len(one["prompt"]), one["prompt"] + one["reply"]


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models/fledgling"))
    parser.add_argument("--drafter", default=str(ROOT / "models/fledgling/drafter"))
    parser.add_argument("--replies")
    parser.add_argument("--taps-tool", default=str(ROOT / "build/release/taps_tool"))
    a = parser.parse_args()
    a.device = "cpu"
    d = load_drafter(a.drafter).eval()
    replies = list(replies_of(a.replies) if a.replies else golden_replies())
    taps, embedding, head = taps_of(a, [(n, seq) for _, n, seq in replies], d.s.taps, d.s.hidden, d.s.vocabulary)
    rounds, tokens, start = collections.Counter(), collections.Counter(), 0
    for kind, n_prompt, seq in replies:
        context = d.context(taps[start:start + len(seq)].float())[None]
        start += len(seq)
        lattices = {}

        def lattice(p):
            if p not in lattices:
                ids = torch.full((1, 1, d.s.block), d.s.mask_token)
                ids[..., 0] = seq[p]
                y = d(context[:, :p], embedding[ids], torch.tensor([[p]]))[0, 0, 1:]
                lattices[p] = Lattice(d, y, head, seq[p])
            return lattices[p]
        for name, n_rows in (("chain", 8), ("tree", 8), ("chain", 16), ("tree", 16)):
            p = n_prompt
            while p < len(seq) - 1:
                rest = seq[p + 1:]
                if name == "chain":
                    n = held_by_chain(lattice(p).chain(n_rows - 1), rest)
                else:
                    n = held_by_tree(lattice(p).tree(n_rows - 1), rest)
                p += n + 1
                for k in (kind, "all"):
                    rounds[k, name, n_rows] += 1
        for k in (kind, "all"):
            tokens[k] += len(seq) - 1 - n_prompt
    print("| reply | tokens | chain, 8 rows | tree, 8 rows | gain | chain, 16 rows | tree, 16 rows | gain |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in tokens:
        cells = [kind, str(tokens[kind])]
        for n_rows in (8, 16):
            chain, tree = (tokens[kind] / rounds[kind, name, n_rows] for name in ("chain", "tree"))
            cells += [f"{chain:.2f}", f"{tree:.2f}", f"{100 * (tree / chain - 1):+.0f} %"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
