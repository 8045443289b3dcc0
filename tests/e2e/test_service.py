"""What people who run the server rely on: TLS, keys and limits, metrics, the log, the load bench, completions."""

import http.client
import json
import re
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
from conftest import ROOT, Server

PROMTOOL = ROOT / ".venv/bin/promtool"
CHAT = {"messages": [{"role": "user", "content": "Count from 1 to 40."}], "temperature": 0,
        "enable_thinking": False}
COUNTED = ", ".join(str(i) for i in range(1, 41))


def ask(url, path, body=None, headers=None, context=None):
    """Status, headers and body of one answer."""
    request = urllib.request.Request(
        url + path, data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=120, context=context) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def samples(page):
    """Sums of the samples of a metrics page by name."""
    out = {}
    for line in page.splitlines():
        match = re.fullmatch(r"([\w:]+)(?:\{.*\})? (\S+)", line)
        if match:
            out[match[1]] = out.get(match[1], 0) + float(match[2])
    return out


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem"], check=True, capture_output=True)
    return folder


def test_tls_carries_whole_replies_streams_and_kept_connections(program, certificate):
    server = Server(program, "--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem"))
    assert server.url.startswith("https://")
    trust = ssl.create_default_context(cafile=certificate / "cert.pem")
    host = server.url.removeprefix("https://")
    try:
        connection = http.client.HTTPSConnection(host, timeout=120, context=trust)
        for is_stream in (False, True, False):  # one connection for all of them
            connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": is_stream}),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            assert answer.status == 200, text
            if is_stream:
                events = [json.loads(line[6:]) for line in text.splitlines()
                          if line.startswith("data: ") and line != "data: [DONE]"]
                said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
            else:
                said = json.loads(text)["choices"][0]["message"]["content"]
            assert said == COUNTED
        connection.close()
        # Neither plain HTTP nor an old protocol hurts it.
        plain = http.client.HTTPConnection(host, timeout=20)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", "/health")
            plain.getresponse()
        assert ask(server.url, "/health", context=trust)[0] == 200
        assert json.loads(ask(server.url, "/props", context=trust)[2])["features"]["tls"] is True
    finally:
        assert server.stop() == 0


def test_certificates_that_cannot_be_used_stop_the_start(program, certificate):
    for flags, code in ((["--tls-cert", "x"], "flag.value"),
                        (["--tls-cert", "x", "--tls-key", "y"], "config.tls"),
                        (["--tls-cert", str(certificate / "cert.pem"), "--tls-key",
                          str(certificate / "cert.pem")], "config.tls")):
        done = subprocess.run([program, "serve", str(ROOT / "models/fledgling"), "--port", "0", *flags],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == (2 if code == "flag.value" else 1) and code in done.stderr, done.stderr


def test_keys_have_limits_and_admins_flush_the_prefix_cache(program, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("amy:amys-own-key\nroot:roots-own-key:admin\n")
    keys.chmod(0o600)
    server = Server(program, "--api-key-file", str(keys), "--key-limits", "amy:tokens=1",
                    "--log-format", "json", "--metrics-open")
    amy, root = {"x-api-key": "amys-own-key"}, {"Authorization": "Bearer roots-own-key"}
    try:
        cached = []
        for key in (root, root, amy):
            status, headers, text = ask(server.url, "/v1/chat/completions", CHAT, key)
            assert status == 200
            cached.append(json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] == cached[2] == 0 and cached[1] > 0  # nobody hits what another key left
        assert headers["x-ratelimit-remaining-tokens"] == "1"  # a reply is paid at its end
        status, headers, text = ask(server.url, "/v1/messages", {**CHAT, "max_tokens": 5}, amy)
        assert (status, json.loads(text)["error"]["refusal"]) == (429, "rate.limited")
        assert int(headers["Retry-After"]) > 60
        assert ask(server.url, "/cache", headers=amy)[0] == 403
        before = json.loads(ask(server.url, "/cache", headers=root)[2])
        assert before["snapshots"] > 0 and before["pages_cached"] > 0
        assert ask(server.url, "/cache/flush", {}, root)[0] == 204
        after = json.loads(ask(server.url, "/cache", headers=root)[2])
        assert (after["snapshots"], after["pages_cached"]) == (0, 0)
        assert after["pages_free"] == after["pages"]
        # Behind a flush the same key hits nothing either.
        usage = json.loads(ask(server.url, "/v1/chat/completions", CHAT, root)[2])["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert ask(server.url, "/health?deep=1", headers=root)[0] == 200
        assert ask(server.url, "/health?deep=1")[0] == 401
        sums = samples(ask(server.url, "/metrics")[2])
        assert sums["roost_snapshot_events_total"] > 0 and sums["roost_canary_failures_total"] == 0
    finally:
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.log]
    logged = [line for line in lines if line["event"] == "request"]
    assert {line["key_label"] for line in logged} == {"amy", "root", ""}
    told = next(line for line in logged if line.get("finish_detail") == "eos")
    for name in ("request_id", "trace_id", "dialect", "status", "prompt_tokens", "cached_from", "completion_tokens",
                 "queue_ms", "ttft_ms", "rounds", "drafted", "accepted", "seed", "token_sha256", "ignored"):
        assert name in told, name
    assert "Count from" not in "".join(server.log) and "amys-own-key" not in "".join(server.log)


def lint(page):
    """What promtool finds, one complaint a line."""
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True)
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


@pytest.mark.host_only
def test_promtool_finds_nothing_but_the_colon_of_the_compatible_names(program, server):
    assert ask(server.url, "/v1/chat/completions", {**CHAT, "response_format": {"type": "json_object"},
                                                   "max_tokens": 20})[0] == 200
    whole = ask(server.url, "/metrics")[2]
    assert "vllm:num_requests_running" in whole
    strange = [line for line in lint(whole) if not line.startswith("vllm:")
               or "metric names should not contain ':'" not in line]
    assert strange == []
    own = Server(program, "--metrics-compat", "none")
    try:
        page = ask(own.url, "/metrics")[2]
        assert "vllm:" not in page and "roost_step_tokens_bucket" in page
        assert lint(page) == []
    finally:
        assert own.stop() == 0


def test_metrics_count_what_the_replies_say(program):
    server = Server(program, "--streams", "2")
    try:
        before = samples(ask(server.url, "/metrics")[2])
        n_out = n_drafted = n_accepted = 0
        for _ in range(2):
            reply = json.loads(ask(server.url, "/v1/chat/completions", CHAT)[2])
            n_out += reply["usage"]["completion_tokens"]
            n_drafted += reply["timings"].get("draft_n", 0)
            n_accepted += reply["timings"].get("draft_n_accepted", 0)
        grown = {k: v - before.get(k, 0) for k, v in samples(ask(server.url, "/metrics")[2]).items()}
        assert grown["roost_emitted_tokens_total"] == n_out == grown["vllm:generation_tokens_total"]
        assert grown["roost_draft_tokens_total"] == n_drafted > 0
        assert grown["roost_accepted_tokens_total"] == n_accepted
        assert grown["roost_accepted_tokens_per_position_total"] == n_accepted
        assert grown["roost_prefix_hit_tokens_total"] > 0
        assert grown["roost_step_tokens_count"] > 0
        assert grown["roost_ttft_seconds_count"] == grown["roost_requests_finished_total"] == 2
    finally:
        assert server.stop() == 0


def test_what_an_operator_asked_to_see_is_written_and_told(program, tmp_path):
    trace, content = tmp_path / "trace.json", tmp_path / "content.jsonl"
    server = Server(program, "--trace-file", str(trace), "--log-content", str(content), "--chunk-ms", "20",
                    "--thinking-budget", "9", "--loop-guard")
    try:
        props = json.loads(ask(server.url, "/props")[2])
        assert props["features"]["log_content"] is True and props["chunk_ms"] == 20
        assert props["snapshot_every"] == 2048 and props["kv_format"] == "bf16"
        assert len(props["model"]["tokenizer_sha256"]) == 64
        assert all(props["kernels"][kind] for kind in ("attention out", "delta z", "router"))
        assert len(props["drafter"]["digest"]) == 32 and props["drafter"]["block"] > 1
        asked = {**CHAT, "stream": True, "return_progress": True, "timings_per_token": True,
                 "messages": [{"role": "user", "content": "Count from 1 to 40. " * 100}], "max_tokens": 20}
        text = ask(server.url, "/v1/chat/completions", asked)[2]
        events = [json.loads(line[6:]) for line in text.splitlines()
                  if line.startswith("data: ") and line != "data: [DONE]"]
        told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        assert told and told[0]["processed"] <= told[0]["total"] > 500
        counts = [event["timings"]["predicted_n"] for event in events if "timings" in event]
        assert counts == sorted(counts) and counts[-1] == 20
        thought = json.loads(ask(server.url, "/v1/chat/completions",
                                 {**CHAT, "enable_thinking": True, "max_tokens": 60})[2])
        assert thought["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 9 + 4
        assert 'kv_format="bf16",state_format="f32"' in ask(server.url, "/metrics")[2]
    finally:
        assert server.stop() == 0
    spans = json.loads(trace.read_text().rstrip(",\n") + "]")
    assert {span["name"] for span in spans} >= {"parse", "queue", "prefill", "decode", "detokenize"}
    assert trace.stat().st_mode & 0o777 == content.stat().st_mode & 0o777 == 0o600
    assert "Count from" not in trace.read_text()
    written = [json.loads(line) for line in content.read_text().splitlines()]
    assert [sorted(one) for one in written] == [["body", "path", "request_id"],
                                                ["choices", "finish_detail", "request_id"]] * 2
    assert written[0]["body"] == asked and written[3]["choices"][0]["content"]
    assert "Count from" not in "".join(server.log)


def test_a_reply_says_something_behind_its_reasoning_where_the_operator_wants_it(program, server):
    needy = Server(program, "--content-required", "--effort-budgets", "low=3", "--max-body", "2",
                   "--top-k", "11", "--presence-penalty", "0.25")
    try:
        props = json.loads(ask(needy.url, "/props")[2])
        assert props["limits"]["body_bytes"] == 2 << 20
        assert (props["defaults"]["top_k"], props["defaults"]["presence_penalty"]) == (11, 0.25)
        ends = json.loads(ask(server.url, "/props")[2])["model"]["eos_ids"]

        def reply(running, **fields):
            body = {**CHAT, "max_tokens": 40, "temperature": 0, "logit_bias": {str(end): 100 for end in ends}, **fields}
            told = json.loads(ask(running.url, "/v1/chat/completions", body)[2])
            assert told["choices"][0]["finish_reason"] == "stop"
            return told["choices"][0]["message"]["content"], told["usage"]["completion_tokens_details"]["reasoning_tokens"]

        # The end is what these replies like best: it comes as soon as it may.
        for fields in ({}, {"enable_thinking": True, "thinking_budget": 3, "min_tokens": 6}):
            assert reply(server, **fields)[0] == ""
            assert reply(needy, **fields)[0].strip()
        # Three tokens, and those that close it: "\n", "</think>" and "\n\n".
        content, n_reasoning = reply(needy, enable_thinking=True, reasoning_effort="low", min_tokens=6)
        assert content.strip() and n_reasoning == 5
    finally:
        assert needy.stop() == 0


def test_the_load_bench_reports_its_figures_by_name(program, tmp_path):
    report = tmp_path / "report.json"
    done = subprocess.run(
        [program, "bench", "serve", str(ROOT / "models/fledgling"), "--concurrency", "1,2", "--rates", "20",
         "--requests", "2", "--runs", "1", "--warm-up", "1", "--warm", "--prompt-tokens", "40",
         "--reply-tokens", "8", "--agent-turns", "3", "--agent-scale", "0.002", "--output", str(report)],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "TTFT" in done.stdout and "agent" in done.stdout
    told = json.loads(report.read_text())["A"]
    assert told["correct"] == {"drafted_is_plain": True, "batch_is_alone": True}
    assert told["about"]["model"]["digest"] and told["about"]["restarted"] is True
    run = told["runs"][0]
    assert run["checks"]["emitted_less_usage"] == 0 and run["checks"]["peak_bytes"] > 1 << 20
    cold = run["cold, 2 at once"]
    for name in ("TTFT", "TTFO", "E2E", "TPOT", "ITL", "ICL", "GAP", "PREFILL", "DECODE", "OUT", "TOTAL",
                 "PER USER", "PEAK", "GOODPUT", "ACCEPT", "REUSE", "ERRORS"):
        assert name in cold, name
    assert cold["ERRORS"] == {} and cold["TTFT"]["n"] == cold["requests"] == 4
    assert run["warm, 1 at once"]["requests"] == 2 and "cold, 20 a second" in run
    assert run["agent"]["recomputed_tokens"] > 0 and run["agent"]["turns"]["requests"] == 3


def test_completions_and_the_man_page_come_from_the_flags(program, tmp_path):
    def printed(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = tmp_path / "roost.bash"
    script.write_text(printed("completion", "bash"))
    offered = subprocess.run(
        ["bash", "-c", f'. {script}; COMP_WORDS=(roost serve --tls); COMP_CWORD=2; _roost; '
         'echo "${COMPREPLY[@]}"; COMP_WORDS=(roost serve --thinking o); COMP_CWORD=3; _roost; '
         'echo "${COMPREPLY[@]}"; COMP_WORDS=(roost be); COMP_CWORD=1; _roost; echo "${COMPREPLY[@]}"'],
        capture_output=True, text=True, check=True).stdout.splitlines()
    assert offered == ["--tls-cert --tls-key", "on off", "bench"]
    for shell in ("zsh", "fish"):
        assert "--key-limits" in printed("completion", shell) or "-l key-limits" in printed("completion", shell)
        if shutil.which(shell):
            (tmp_path / shell).write_text(printed("completion", shell))
            subprocess.run([shell, "-n", tmp_path / shell], check=True)
    page = printed("man")
    if shutil.which("groff"):
        shown = subprocess.run(["groff", "-man", "-Tascii", "-ww"], input=page, capture_output=True, text=True)
        assert shown.returncode == 0 and shown.stderr == "", shown.stderr
    assert subprocess.run([program, "completion", "tcsh"], capture_output=True).returncode == 2


def test_draining_says_so_and_lets_replies_end(program):
    server = Server(program, "--grace", "20")
    host = server.url.removeprefix("http://")
    busy = http.client.HTTPConnection(host, timeout=60)
    busy.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True, "ignore_eos": True,
                                                             "max_tokens": 300}),
                 {"Content-Type": "application/json"})
    stream = busy.getresponse()
    assert stream.status == 200 and stream.readline()
    server.process.send_signal(signal.SIGTERM)
    text = stream.read().decode()
    assert text.rstrip().endswith("data: [DONE]"), text[-300:]
    assert server.process.wait(timeout=60) == 0
