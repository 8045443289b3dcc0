"""The prefix cache in files: it survives a restart, and a kill at any moment."""

import json
import pathlib
import re
import signal
import urllib.request

import pytest
from conftest import Server

FLAGS = ["--context", "4096", "--streams", "2", "--no-drafts", "--cache-write", "4096"]
SYSTEM = "You are a careful assistant. " + "Remember every number that you are told. " * 60


def post(server, messages, **fields):
    body = {"messages": messages, "temperature": 0, "enable_thinking": False, **fields}
    request = urllib.request.Request(
        server.url + "/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request, timeout=60))


def ask(server, question):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    reply = post(server, messages, max_tokens=8)
    return reply["roost"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def entries(folder):
    return [path for path in pathlib.Path(folder).iterdir() if path.suffix == ".prefix"]


def test_a_restart_goes_on_from_files(program, tmp_path):
    flags = [*FLAGS, "--cache-dir", str(tmp_path)]
    first = Server(program, *flags)
    cold, n_cached = ask(first, "What is 2 plus 2?")
    assert (n_cached, cold["cached_from"]) == (0, "none")
    assert first.stop() == 0
    assert entries(tmp_path)
    second = Server(program, *flags)
    warm, n_cached = ask(second, "What is 2 plus 2?")
    assert warm["token_sha256"] == cold["token_sha256"]
    assert warm["cached_from"] == "disk" and n_cached > 500
    ram, n_cached_again = ask(second, "What is 2 plus 2?")
    assert ram["cached_from"] == "ram" and n_cached_again == n_cached
    assert second.stop() == 0


def test_a_restart_keeps_the_tokens_of_replies(program, tmp_path):
    flags = [*FLAGS, "--cache-dir", str(tmp_path)]
    day = {"type": "object", "properties": {"day": {"enum": ["mon", "tue"]}}, "required": ["day"]}
    fields = {"tools": [{"type": "function", "function": {"name": "book", "parameters": day}}],
              "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}
    question = [{"role": "user", "content": "Book a table."}]
    first = Server(program, *flags)
    called = post(first, question, **fields)["choices"][0]["message"]
    later = [*question, called,
             {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "booked"}]
    told = [post(first, later, **fields)]
    assert first.stop() == 0
    for is_kept in (True, False):
        if not is_kept:
            (tmp_path / "replies").unlink()
        server = Server(program, *flags)
        told.append(post(server, later, **fields))
        assert server.stop() == 0
    before, kept, gone = [reply["roost"]["replayed_tokens"] for reply in told]
    assert before == kept > 0 and gone == 0
    assert told[0]["roost"]["token_sha256"] == told[1]["roost"]["token_sha256"]


def test_a_kill_during_writes_loses_no_answer(program, tmp_path):
    flags = [*FLAGS, "--cache-dir", str(tmp_path)]
    fresh = Server(program, *FLAGS, "--no-cache")
    want = {n: ask(fresh, f"What is {n} plus 2?")[0]["token_sha256"] for n in range(4)}
    assert fresh.stop() == 0
    sources = set()
    for n in range(4):
        server = Server(program, *flags)
        for question in range(n + 1):
            have, _ = ask(server, f"What is {question} plus 2?")
            assert have["token_sha256"] == want[question]
            sources.add(have["cached_from"])
        # Files are written while these are answered and after it.
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(timeout=60)
    assert "disk" in sources
    server = Server(program, *flags)  # the folder is whole, and nobody owns it any more
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".temporary"]
    assert ask(server, "What is 0 plus 2?")[0]["token_sha256"] == want[0]
    assert server.stop() == 0


@pytest.mark.host_only
def test_files_of_other_arithmetic_are_not_believed(program, tmp_path):
    flags = [*FLAGS, "--cache-dir", str(tmp_path)]
    first = Server(program, *flags)
    ask(first, "What is 2 plus 2?")
    assert first.stop() == 0
    second = Server(program, *flags, "--kv", "int8")
    reply, n_cached = ask(second, "What is 2 plus 2?")
    assert (n_cached, reply["cached_from"]) == (0, "none")
    metrics = urllib.request.urlopen(second.url + "/metrics", timeout=60).read().decode()
    skipped = re.search(r'roost_disk_cache_errors_total\{[^}]*op="read"[^}]*\} (\d+)', metrics)
    assert int(skipped.group(1)) > 0
    assert second.stop() == 0
