"""Start and stop of the server, and the same model without one."""

import json
import os
import pty
import signal
import subprocess

import openai
from conftest import ROOT, Server

COUNTED = ", ".join(str(i) for i in range(1, 41))


def run(program, *arguments):
    return subprocess.run(
        [program, "run", str(ROOT / "models/fledgling"), *arguments],
        capture_output=True, text=True, timeout=120,
    )


def test_run_prints_the_reply_and_nothing_else(program):
    done = run(program, "-p", "Count from 1 to 40.", "--temperature", "0", "--no-think")
    assert (done.returncode, done.stdout, done.stderr) == (0, COUNTED + "\n", "")


def test_run_as_json_says_what_the_server_says(program, server):
    done = run(program, "-p", "Count from 1 to 40.", "--temperature", "0.7", "--seed", "3",
               "--no-think", "--json")
    mine = json.loads(done.stdout)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    reply = client.chat.completions.create(
        model="fledgling", temperature=0.7, seed=3,
        messages=[{"role": "user", "content": "Count from 1 to 40."}],
        extra_body={"enable_thinking": False},
    )
    assert mine["text"] == reply.choices[0].message.content
    assert mine["token_sha256"] == reply.model_extra["roost"]["token_sha256"]
    assert mine["prompt_tokens"] == reply.usage.prompt_tokens
    assert len(mine["token_ids"]) == reply.usage.completion_tokens
    assert (mine["finish"], mine["seed"]) == ("stop", 3)
    assert mine["accept_length"] >= 1
    assert mine["timings"]["predicted_n"] == len(mine["token_ids"]) and mine["timings"]["prompt_ms"] > 0


def test_a_chat_in_the_terminal_keeps_the_conversation(program):
    done = subprocess.run(
        [program, "run", str(ROOT / "models/fledgling"), "--temperature", "0", "--no-think", "--json"],
        input="Count from 1 to 5.\nCount from 1 to 40.\n", capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["text"], second["text"]) == ("1, 2, 3, 4, 5", COUNTED)
    # The second prompt holds the first turn: its question and its answer.
    alone = json.loads(run(program, "-p", "Count from 1 to 40.", "--no-think", "--json", "--max-tokens", "1").stdout)
    assert second["prompt_tokens"] >= alone["prompt_tokens"] + first["prompt_tokens"] + len(first["token_ids"]) - 8


def test_a_terminal_folds_reasoning_into_one_line(program):
    command = [program, "run", str(ROOT / "models/fledgling"), "--temperature", "0"]
    reply = json.loads(subprocess.run([*command, "-p", "What is 7 + 8?", "--json"], capture_output=True, check=True).stdout)
    assert reply["reasoning"] and reply["text"]
    leader, follower = pty.openpty()
    chat = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    os.write(leader, b"What is 7 + 8?\n/reasoning\n\x04")
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    assert chat.wait(timeout=60) == 0
    text = shown.decode().replace("\r\n", "\n")
    before, _, after = text.partition(" words)\x1b[0m\n")
    assert after, text
    lines = before.split("\n")[-1].split("\r\x1b[K\x1b[2m")  # one line, drawn again and again
    assert len(lines) > 2 and lines[-1].startswith("(thought, "), lines
    assert after.startswith(reply["text"] + "\n")
    assert reply["reasoning"].strip() in after  # what /reasoning shows


def test_refusals_of_the_command_line_have_their_own_status(program):
    for arguments, code in [
        (["serve"], "flag.value"),
        (["serve", "x", "--nonsense"], "flag.unknown"),
        (["serve", "x", "--port", "x"], "flag.value"),
        (["serve", "x", "--queue-size", "0"], "flag.value"),
        (["serve", "x", "--context", "300000"], "flag.value"),
        (["bench", "x", "--context", "300000"], "flag.value"),
        (["bench", "x", "--prompt-rows", "300000"], "flag.value"),
    ]:
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert done.returncode == 2, arguments
        assert code in done.stderr, done.stderr
    done = subprocess.run([program, "serve", "x", "--host", "0.0.0.0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "config.key_required" in done.stderr
    done = run(program, "-p", "x", "--temperature", "9")
    assert done.returncode == 2 and "flag.value" in done.stderr


def test_sigterm_lets_a_running_reply_end(program):
    server = Server(program)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)
    stream = client.chat.completions.create(
        model="x", stream=True, temperature=0, max_tokens=200,
        messages=[{"role": "user", "content": "Count from 1 to 40."}],
        extra_body={"enable_thinking": False},
    )
    first = next(iter(stream))
    assert first.choices[0].delta.role == "assistant"
    server.process.send_signal(signal.SIGTERM)
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == COUNTED
    assert server.process.wait(timeout=60) == 0


def test_after_the_grace_a_reply_ends_with_an_error_event(program):
    server = Server(program, "--grace", "0.2")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)
    stream = client.chat.completions.create(
        model="x", stream=True, temperature=0, messages=[{"role": "user", "content": "Hello"}],
        extra_body={"ignore_eos": True},
    )
    events = iter(stream)
    next(events)
    server.process.send_signal(signal.SIGTERM)
    failures = []
    try:
        for _ in events:
            pass
    except openai.APIError as error:
        failures.append(error)
    assert failures and failures[0].code == "server.draining"
    assert server.process.wait(timeout=60) == 0


def test_a_vanished_client_frees_its_place(program, server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)
    for _ in range(20):
        stream = client.chat.completions.create(
            model="x", stream=True, messages=[{"role": "user", "content": "Hello"}],
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        stream.close()
    reply = client.chat.completions.create(
        model="x", temperature=0, messages=[{"role": "user", "content": "Count from 1 to 40."}],
        extra_body={"enable_thinking": False},
    )
    assert reply.choices[0].message.content == COUNTED
