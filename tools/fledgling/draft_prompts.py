"""Writes the prompts on which drafted replies are compared with plain ones.

    python draft_prompts.py TARGET OUT      # TARGET: models/fledgling; OUT: tests/golden/draft_prompts.json

200 conversations of every kind that Fledgling knows, each rendered with thinking and without.
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import data

KINDS = ["count", "code", "json", "list", "prose", "arith", "copy", "recall", "tools", "facts"]


def main():
    from tokenizers import Tokenizer
    target, out = sys.argv[1:3]
    tokenizer = Tokenizer.from_file(os.path.join(target, "tokenizer.json"))
    template = data.environment(os.path.join(target, "chat_template.jinja"))
    r, prompts = random.Random(20261), []
    while len(prompts) < 200:
        kind = KINDS[len(prompts) % len(KINDS)]
        s = data.sample(r, kind)
        if s["image"] is not None:
            continue
        ids = []
        for think in (False, True):
            text = template.render(messages=s["messages"][:-1], tools=s["tools"],
                                   add_generation_prompt=True, enable_thinking=think)
            ids.append(tokenizer.encode(text, add_special_tokens=False).ids)
        if len(ids[0]) <= 300:
            prompts.append({"kind": kind, "plain": ids[0], "thinking": ids[1]})
    with open(out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(p, separators=(",", ":")) for p in prompts) + "\n]\n")


if __name__ == "__main__":
    main()
