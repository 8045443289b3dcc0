"""Thousands of mixed requests: memory, descriptors and threads stay what they are."""

import concurrent.futures
import os
import random
import socket
import urllib.parse

import pytest

import dialects
from conftest import Server, assert_alive, resident_kib
from dialects import PATHS, body_of, must_call, tool

N_WARM, N_ALL, N_PAIRWISE = 125, 1250, 150  # of each dialect; all of them go to one server
GROWTH_KIB = 1250  # a KiB a request of the long run: no prompt, reply or connection is kept


def figures(server):
    return resident_kib(server), len(os.listdir(f"/proc/{server.process.pid}/fd")), len(
        os.listdir(f"/proc/{server.process.pid}/task"))


def leave_early(server, dialect, body):
    url = urllib.parse.urlsplit(server.url)
    data = dialects.json.dumps(body).encode()
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(f"POST {PATHS[dialect]} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        connection.recv(64)


def one_request(server, dialect, seed):
    rng = random.Random(seed)
    turns = [f"Say {rng.choice('red green blue'.split())} {rng.randrange(50)}."]
    fields = {"max_tokens": rng.randrange(1, 5), "temperature": 1, "seed": seed}
    if dialect != "completions":
        fields["enable_thinking"] = rng.random() < 0.3
    kind = rng.randrange(6)
    if kind == 0:
        dialects.request(server.url, "POST", PATHS[dialect], {"seed": "x", **body_of(dialect, turns)})
    elif kind == 1:
        leave_early(server, dialect, body_of(dialect, turns, stream=True, **{**fields, "max_tokens": 200}))
    elif kind == 2:
        dialects.ask(server, dialect, turns, structured_outputs={"choice": ["yes", "no"]}, **fields)
    elif kind == 3 and dialect != "completions":
        offered = [tool(dialect, "f", {"type": "object", "properties": {"n": {"type": "integer"}}})]
        dialects.ask(server, dialect, turns, tools=offered, tool_choice=must_call(dialect), **fields)
    else:
        assert dialects.ask(server, dialect, turns, stream=kind == 4, **fields).status == 200


@pytest.fixture(scope="module")
def small_server(program):
    """Its caches have small caps, so that they are full before anything is measured."""
    running = Server(program, "--cache-memory", "32", "--responses-store", "16", "--streams", "4")
    yield running
    assert running.stop() == 0


@pytest.mark.cells()
def test_S73_thousands_of_mixed_requests_leave_no_growth_behind(dialect, small_server, request):
    n = N_ALL if request.config.getoption("--cells") == "all" else N_PAIRWISE
    run = lambda seed: one_request(small_server, dialect, seed)  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(N_WARM)))
        assert_alive(small_server)
        before = figures(small_server)
        list(pool.map(run, range(N_WARM, N_WARM + n)))
        assert_alive(small_server)
    for _ in range(2000):  # connections of clients that have gone are closed soon, not at once
        after = figures(small_server)
        if after[1:] <= before[1:]:
            break
    assert after[1] <= before[1] and after[2] == before[2], (before, after)
    assert after[0] - before[0] < GROWTH_KIB, (before, after)
