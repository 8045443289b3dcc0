"""One server for all behaviours, and the cells of a row: dialect, stream, thinking, drafts.

A test is named after its row of matrix.tsv and its cell: test_S07_…[chat-stream-think-draft].
Every cell begins with an empty prefix cache. Every request of a row is made twice more: streamed the other way
(the deltas add up to the whole), and with neither cache nor drafts (the tokens are the same). Behind every row the
server is alive and idle.
"""

import contextlib
import http.client
import importlib.util
import itertools
import json
import pathlib
import urllib.parse

import pytest

import dialects

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE_KIB = 4096  # what the allocator keeps of the largest body is more than that only when it leaks
_spec = importlib.util.spec_from_file_location("e2e_conftest", ROOT / "tests/e2e/conftest.py")
_e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_e2e)


class Server(_e2e.Server):
    """With one thread for the model: the other CPU is the clients', and the tokens do not depend on it."""

    def __init__(self, program, *flags):
        super().__init__(program, "--threads", "1", *flags)


def pytest_addoption(parser):
    parser.addoption("--roost", default=str(ROOT / "build/release/roost"), help="the program under test")
    parser.addoption("--cells", choices=("pairwise", "all"), default="pairwise",
                     help="all: the whole product of dialect, stream, thinking and drafts")


@pytest.fixture(scope="session")
def server(program):
    running = Server(program)
    yield running
    assert running.stop() == 0


class Cell:
    def __init__(self, dialect, is_stream, thinks, drafts):
        self.dialect, self.is_stream, self.thinks, self.drafts = dialect, is_stream, thinks, drafts

    def __str__(self):
        words = [self.dialect, "stream" if self.is_stream else "whole"]
        if self.dialect != "completions":
            words.append("think" if self.thinks else "nothink")
        return "-".join(words + ["draft" if self.drafts else "plain"])


def cells_of(marker, is_pairwise):
    names = marker.kwargs.get("dialects", dialects.DIALECTS)
    thinks = marker.kwargs.get("thinks", (False, True))
    out = []
    for dialect, stream, think, drafts in itertools.product(names, (False, True), thinks, (False, True)):
        is_raw = dialect == "completions"
        if is_raw and think and len(thinks) > 1:
            continue  # raw text has no thinking to switch
        # Half of the product: any two values of any two of them still meet.
        parity = stream ^ drafts ^ (think if len(thinks) > 1 and not is_raw else False)
        if is_pairwise and parity != bool(dialects.DIALECTS.index(dialect) % 2):
            continue
        out.append(Cell(dialect, stream, think, drafts))
    return out


def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("cells")
    if "talk" in metafunc.fixturenames or "cell" in metafunc.fixturenames:
        name = "talk" if "talk" in metafunc.fixturenames else "cell"
        found = cells_of(marker, metafunc.config.getoption("--cells") == "pairwise")
        metafunc.parametrize(name, found, ids=str, indirect=True)
    elif "dialect" in metafunc.fixturenames:
        metafunc.parametrize("dialect", marker.kwargs.get("dialects", dialects.DIALECTS))


def pytest_configure(config):
    config.addinivalue_line("markers", "cells(dialects, thinks): the cells of a row")


class Talk:
    """Requests of one cell, with the oracles of every row."""

    def __init__(self, server, cell):
        self.server, self.cell, self.dialect = server, cell, cell.dialect

    def fields(self, fields):
        out = {"temperature": 0, "seed": 7, "max_tokens": 48, "draft": self.cell.drafts, **fields}
        if self.dialect != "completions":
            out.setdefault("enable_thinking", self.cell.thinks)
        return {key: value for key, value in out.items() if value is not None}

    def once(self, turns, stream=None, **fields):
        is_stream = self.cell.is_stream if stream is None else stream
        return dialects.ask(self.server, self.dialect, turns, is_stream, **self.fields(fields))

    def ask(self, turns, **fields):
        reply = self.once(turns, **fields)
        assert reply.status == 200, reply.body
        other = self.once(turns, stream=not self.cell.is_stream, **fields)
        assert other.told() == reply.told()
        fresh = self.once(turns, **{**fields, "cache_prompt": False, "draft": False})
        assert fresh.roost["prompt_sha256"] == reply.roost["prompt_sha256"]
        assert fresh.told() == reply.told()
        assert fresh.n_cached == 0
        return reply

    def prompt_ids(self, turns, **fields):
        return dialects.prompt_ids(self.server, self.dialect, turns, **self.fields(fields))


def flush(server):
    """Empties the prefix cache: what a cell finds in it is its own, wherever in the run it stands."""
    assert dialects.request(server.url, "POST", "/cache/flush")[0] in (200, 204)


def figures(connection):
    """What a request must give back: work, memory of the engine, connections (but for the one that asks)."""
    def get(path):
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    told = json.loads(get("/requests"))
    out = {"requests": len(told["requests"]), "sequences": told["running"] + told["waiting"],
           "pages": told["pages"] - told["pages_free"], "slots": told["slots"] - told["slots_free"]}
    for line in get("/metrics").splitlines():
        if line.startswith("roost_connections{"):
            out["connections"] = int(float(line.split()[-1])) - 1
    return out


def resident_kib(server):
    status = dict(line.split(":", 1) for line in open(f"/proc/{server.process.pid}/status", encoding="ascii"))
    return sum(int(status[key].split()[0]) for key in ("VmRSS", "VmSwap"))


def assert_alive(server):
    """A plain request is answered, and nothing is held: no work, page, slot or connection."""
    reply = dialects.ask(server, "chat", ["Say ok"], enable_thinking=False, temperature=0, max_tokens=4)
    assert reply.status == 200 and reply.n_reply > 0
    address = urllib.parse.urlsplit(server.url)
    # One connection asks again and again: a client that has gone is seen soon, not at once.
    with contextlib.closing(http.client.HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        for _ in range(2000):
            seen = figures(connection)
            if not any(seen.values()):
                return
    raise AssertionError(seen)


@pytest.fixture(scope="session")
def program(request):
    return request.config.getoption("--roost")


@pytest.fixture
def cell(request):
    return request.param


@pytest.fixture
def talk(server, request):
    flush(server)
    yield Talk(server, request.param)
    assert_alive(server)


@pytest.fixture
def alive(server):
    """For what is hostile: no memory may stay behind it either."""
    assert_alive(server)
    before = resident_kib(server)
    yield server
    assert_alive(server)
    assert resident_kib(server) - before < HOSTILE_KIB
