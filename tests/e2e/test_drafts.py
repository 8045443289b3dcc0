"""Drafts over HTTP: no reply differs for them, whatever it asks for, and their figures add up."""

import json
import re
import subprocess
import urllib.request

import pytest

from conftest import ROOT

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"]}
ASKS = {
    "greedy": ("Count from 1 to 40.", {}),
    "drawn": ("Count from 1 to 40.", {"temperature": 0.8, "seed": 4}),
    "penalties": ("Tell me a short story about Kira and a lantern.",
                  {"frequency_penalty": 0.3, "presence_penalty": 0.2, "temperature": 0.7, "seed": 1}),
    "bias": ("Count from 1 to 40.", {"logit_bias": {"220": -1.5}, "min_tokens": 60}),
    "logprobs": ("Count from 1 to 40.", {"logprobs": True, "top_logprobs": 3}),
    "budget": ("Nils has 12 pears and buys 7 more. How many pears does Nils have now?",
               {"enable_thinking": True, "thinking_token_budget": 9}),
    "schema": ("Extract name and age as JSON: Omar is 41 years old and lives in Lisbon.",
               {"response_format": {"type": "json_schema",
                                    "json_schema": {"name": "person", "schema": SCHEMA}}}),
}


def chat(server, question, fields):
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 120,
            "enable_thinking": False, **fields}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def metrics(server):
    """The sum over the labels of every metric."""
    sums = {}
    with urllib.request.urlopen(server.url + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if match := re.fullmatch(r"roost_(\w+)\{.*\} (\S+)", line):
                sums[match[1]] = sums.get(match[1], 0) + float(match[2])
    return sums


@pytest.mark.parametrize("name", ASKS)
def test_a_reply_is_the_same_with_and_without_drafts(server, name):
    question, fields = ASKS[name]
    # Behind replies whose drafts failed one may try none, but not many.
    replies = (chat(server, question, fields) for _ in range(20))
    drafted = next(reply for reply in replies if reply["timings"].get("draft_n", 0) > 0)
    plain = chat(server, question, {**fields, "draft": False})
    assert drafted["roost"]["token_sha256"] == plain["roost"]["token_sha256"]
    assert drafted["choices"][0].get("logprobs") == plain["choices"][0].get("logprobs")
    assert plain["roost"]["accept_length"] is None


def test_the_figures_of_replies_add_up_in_the_metrics(server):
    before = metrics(server)
    replies = [chat(server, question, fields) for question, fields in ASKS.values()]
    after = metrics(server)
    grown = {name: after[name] - before[name] for name in after}
    roost = [reply["roost"] for reply in replies]
    assert grown["draft_rounds_total"] == sum(r["rounds"] - r["rounds_plain"] for r in roost)
    assert grown["plain_rounds_total"] == sum(r["rounds_plain"] for r in roost)
    assert grown["draft_rows_total"] == sum(r["draft_rows"] for r in roost)
    assert grown["draft_tokens_total"] == sum(r["timings"].get("draft_n", 0) for r in replies)
    assert grown["accepted_tokens_total"] == sum(r["timings"].get("draft_n_accepted", 0) for r in replies)
    assert grown["draft_rows_total"] == grown["draft_tokens_total"] + grown["draft_rounds_total"]
    assert grown["draft_tokens_per_position_total"] == grown["draft_tokens_total"]
    assert grown["accepted_tokens_per_position_total"] == grown["accepted_tokens_total"]
    drafted = [reply for reply in replies if reply["roost"]["accept_length"] is not None]
    assert drafted
    for reply in drafted:
        # Tokens behind the first one, an end token too.
        n_tokens = reply["usage"]["completion_tokens"] - (reply["choices"][0]["finish_reason"] != "stop")
        assert reply["roost"]["accept_length"] == pytest.approx(n_tokens / reply["roost"]["rounds"], abs=1e-3)
        assert 0 <= reply["roost"]["draft_share"] <= 1
        assert sorted(reply["roost"]["accepted_per_position"], reverse=True)[0] <= 1
    assert after["accept_length"] >= 1
    assert 0 <= after["draft_time_ratio"] < 1


def test_a_drafter_is_found_beside_the_model_or_named(program, tmp_path):
    model = ROOT / "models/fledgling"
    for file in model.iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file)

    def drafted(folder, *flags):
        done = subprocess.run(
            [program, "run", str(folder), "-p", "Count from 1 to 40.", "--temperature", "0", "--no-think",
             "--json", "--log-level", "info", *flags], capture_output=True, text=True, timeout=120, check=True)
        reply = json.loads(done.stdout)
        return reply["token_sha256"], "step=drafter" in done.stderr, reply["accept_length"] is not None

    # How often drafts pay is a matter of the machine; that there are some is not.
    beside, named = drafted(model), drafted(tmp_path, "--drafter", str(model / "drafter"))
    copies_only, none = drafted(tmp_path), drafted(model, "--no-drafts")
    assert len({reply[0] for reply in (beside, named, copies_only, none)}) == 1
    assert [reply[1] for reply in (beside, named, copies_only, none)] == [True, True, False, False]
    assert [reply[2] for reply in (beside, named, none)] == [True, True, False]
