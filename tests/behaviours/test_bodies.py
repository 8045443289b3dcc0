"""Bodies from hostile or clumsy clients, over sockets: what is refused while it is read, and what comes after it."""

import concurrent.futures
import http.client
import json
import socket
import time
import urllib.parse

import pytest

from conftest import assert_alive, resident_kib
from dialects import DIALECTS, PATHS, body_of, request

MIB = 1 << 20


def address(server):
    url = urllib.parse.urlsplit(server.url)
    return url.hostname, url.port


def head(server, dialect, *lines):
    host, port = address(server)
    return "\r\n".join([f"POST {PATHS[dialect]} HTTP/1.1", f"Host: {host}:{port}", "Content-Type: application/json",
                        *lines, "", ""]).encode()


def answer_of(connection):
    """(status, refusal) of what comes back."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read())["error"]["refusal"]


def refusal_of(server, dialect, *lines, body=b"", pieces=()):
    with socket.create_connection(address(server), timeout=60) as connection:
        try:
            connection.sendall(head(server, dialect, *lines) + body)
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while it was sent
        return answer_of(connection)


def until_timed_out(server, dialect, drips):
    """A body that never comes to its end: silent, or a byte a second."""
    with socket.create_connection(address(server), timeout=60) as connection:
        connection.sendall(head(server, dialect, "Content-Length: 100000") + b"{")
        connection.settimeout(1 if drips else 60)
        for _ in range(60):
            try:
                connection.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                connection.sendall(b" ")
        connection.settimeout(60)
        return answer_of(connection)


@pytest.fixture(scope="module", autouse=True)
def stretched(server):
    """What the allocator keeps of the largest prompts it keeps once, for each thread: behind this, memory is flat."""
    n_flat = 0
    for dialect in DIALECTS * 8:
        before = resident_kib(server)
        request(server.url, "POST", PATHS[dialect], body_of(dialect, ["a b " * (9 * MIB // 4)]))
        n_flat = n_flat + 1 if resident_kib(server) - before < 256 else 0
        if n_flat == 2 * len(DIALECTS):
            return
    raise AssertionError("memory grows with every large body")


@pytest.fixture(scope="module")
def slow_bodies(server):
    """What slow clients of all dialects were told; they take ten seconds, so all of them at once."""
    cases = [(dialect, drips) for dialect in DIALECTS for drips in (False, True)]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        told = list(pool.map(lambda case: until_timed_out(server, *case), cases))
    return dict(zip(cases, told))


@pytest.mark.cells()
def test_S64_a_body_that_is_slow_or_too_short_is_timed_out(dialect, slow_bodies, alive):
    for drips in (False, True):
        assert slow_bodies[dialect, drips] == (408, "http.read_timeout")


@pytest.mark.cells()
def test_S64_bodies_too_large_are_refused_while_they_are_read(dialect, alive):
    for n in (65 * MIB, 1 << 30):
        begin = time.monotonic()
        told = refusal_of(alive, dialect, f"Content-Length: {n}", body=b"{" + b" " * 1000)
        assert told == (413, "http.body_too_large")
        assert time.monotonic() - begin < 8  # nobody waits for the rest of it
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    told = refusal_of(alive, dialect, "Transfer-Encoding: chunked", pieces=[chunk] * 66)
    assert told == (413, "http.body_too_large")
    for n in (1, 9):
        status, _, answer = request(alive.url, "POST", PATHS[dialect], body_of(dialect, ["a b " * (n * MIB // 4)]))
        assert (status, json.loads(answer)["error"]["refusal"]) == (400, "request.too_long")


@pytest.mark.cells()
def test_S64_malformed_requests_are_refused_by_name(dialect, alive):
    fine = json.dumps(body_of(dialect, ["Hi"])).encode()
    length = f"Content-Length: {len(fine)}"
    cases = ((("Content-Encoding: gzip", length), (415, "http.content_encoding")),
             ((length, "Transfer-Encoding: chunked"), (400, "http.length_conflict")),
             ([length, *(f"X-{i}: y" for i in range(20_000))], (431, "http.header_too_large")))
    for lines, told in cases:
        assert refusal_of(alive, dialect, *lines, body=fine) == told
        assert_alive(alive)
    key = {"completions": "prompt", "responses": "input"}.get(dialect, "messages")
    one = "x" if dialect == "completions" else {"role": "user", "content": "x"}
    status, _, answer = request(alive.url, "POST", PATHS[dialect], {key: [one] * 100_000})
    assert (status, json.loads(answer)["error"]["refusal"]) == (400, "request.too_many_items")


@pytest.mark.cells()
def test_S64_behind_a_refused_request_a_good_one_is_answered_on_the_same_connection(dialect, alive):
    good = json.dumps({**body_of(dialect, ["Hi"], max_tokens=2), "temperature": 0})
    connection = http.client.HTTPConnection(*address(alive), timeout=60)
    kept = None
    for body, status in ((good, 200), ("{", 400), (good, 200), ('{"model": 1}', 400), (good, 200)):
        connection.request("POST", PATHS[dialect], body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == status
        answer.read()
        assert kept in (None, connection.sock)
        kept = connection.sock
    connection.close()
    # A body in chunks without a length is as good.
    pieces = b"".join(f"{len(piece):x}\r\n{piece}\r\n".encode() for piece in (good[:7], good[7:])) + b"0\r\n\r\n"
    with socket.create_connection(address(alive), timeout=60) as raw:
        raw.sendall(head(alive, dialect, "Transfer-Encoding: chunked") + pieces)
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        assert answer.status == 200
        answer.read()


HOSTILE = (b"", b"\0", b"\xff\xfe{}", b"{", b"[]", b"null", b'"x"', b"{" * 200_000, b'{"model":"\xed\xa0\x80"}',
           b'{"model":"\\ud800"}', b'{"a":1,"a":2}', b'{"model":1e999}', b'{"n":NaN}', b"{}{}", b'{"messages":[null]}',
           b'{"prompt":[[[1]]]}', b'{"input":[{"type":"\\u0000"}]}', b'{"messages":[{"role":"user","content":{}}]}',
           b'{"tools":[{}],"messages":[]}', b'{"prompt":"' + b"\\u0000" * 50_000 + b'","max_tokens":1e400}')


@pytest.mark.cells()
def test_S64_after_each_hostile_body_the_server_is_alive(dialect, alive):
    for body in HOSTILE:
        status, _, answer = request(alive.url, "POST", PATHS[dialect], body)
        assert 400 <= status < 500, (body[:50], answer)
        assert json.loads(answer)["error"]["refusal"].startswith(("json.", "request.", "http."))
        assert_alive(alive)
