"""Pictures, while no tower reads them: wherever one stands it is refused by name, and nothing is done for it.

What a picture shows cannot be asked yet (S55, S58, S59): these rows hold that none is skipped or taken for another.
"""

import base64
import concurrent.futures
import json
import socket
import struct
import zlib

import pytest

from dialects import PATHS, body_of, request

CONVERSATIONS = ("chat", "responses", "messages")


def png(width, height, bits=8, color=0, row=b"\0"):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    rows = zlib.compress((b"\0" + row) * height, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURES = {  # enough of each format to be recognized
    "image/png": png(2, 2, 8, 6, b"\xff\0\0\0\0\xff\0\xff"),
    "image/jpeg": b"\xff\xd8\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"
                  b"\0\0\0\0\xff\xd9",
    "image/webp": b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0",
    "image/gif": b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;",
    "image/heic": b"\0\0\0\x18ftypheic\0\0\0\0heicmif1",
    "image/avif": b"\0\0\0\x18ftypavif\0\0\0\0avifmif1",
}


def data_url(kind, data):
    return f"data:{kind};base64," + base64.b64encode(data).decode()


def part(dialect, url):
    if dialect == "responses":
        return {"type": "input_image", "image_url": url}
    if dialect == "chat":
        return {"type": "image_url", "image_url": {"url": url}}
    if url.startswith("data:"):
        kind, data = url[5:].split(";base64,")
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def key_of(dialect):
    return "input" if dialect == "responses" else "messages"


def asked(dialect, *parts, **fields):
    words = {"type": "input_text" if dialect == "responses" else "text", "text": "What is it?"}
    return {key_of(dialect): [{"role": "user", "content": [*parts, words]}], **fields}


def refused(server, dialect, body, path=None, refusal="image.not_offered"):
    status, _, answer = request(server.url, "POST", path or PATHS[dialect], body)
    assert status == 400, answer
    error = json.loads(answer)["error"]
    assert error["refusal"] == refusal
    return error["param"]


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S25_a_picture_in_the_result_of_a_tool_is_as_one_in_a_question(dialect, alive):
    picture = part(dialect, data_url("image/png", PICTURES["image/png"]))
    body = body_of(dialect, ["Look.", {"calls": [("look", "{}")]}, {"tool": "?"}])
    turn = body[key_of(dialect)][-1]
    place = f"{key_of(dialect)}[2].{'output' if dialect == 'responses' else 'content'}[0]"
    if dialect == "messages":
        turn["content"][0]["content"] = [picture]
        place += ".content[0]"
    else:
        turn["output" if dialect == "responses" else "content"] = [picture]
    assert refused(alive, dialect, body) == place
    assert refused(alive, dialect, asked(dialect, picture)) == f"{key_of(dialect)}[0].content[0]"


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S55_a_picture_of_any_format_is_refused_and_never_skipped(dialect, alive):
    for kind, data in PICTURES.items():
        for stream in (False, True):
            where = refused(alive, dialect, asked(dialect, part(dialect, data_url(kind, data)), stream=stream))
            assert where == f"{key_of(dialect)}[0].content[0]"


def resident_kib(server):
    for line in open(f"/proc/{server.process.pid}/status", encoding="ascii"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S56_a_picture_of_many_pixels_is_refused_and_costs_no_memory(dialect, alive):
    huge = png(20_000, 20_000, 1, 0, bytes(2_500))
    assert len(huge) < 100_000
    body = asked(dialect, part(dialect, data_url("image/png", huge)))
    refused(alive, dialect, body)
    before = resident_kib(alive)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: refused(alive, dialect, body), range(16)))
    assert resident_kib(alive) - before < 8 * 1024  # bodies in flight; one picture would be 50 MB


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S57_no_address_of_a_picture_is_connected_to(dialect, alive):
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        port = trap.getsockname()[1]
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}", f"[::ffff:127.0.0.1]:{port}", f"2130706433:{port}",
                 f"0177.0.0.1:{port}", "10.0.0.1", "169.254.169.254", "[fd00::1]")
        urls = [f"{scheme}://{host}/a.png" for scheme in ("http", "https") for host in hosts]
        for url in [*urls, "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher:x", ""]:
            refused(alive, dialect, asked(dialect, part(dialect, url)))
        with pytest.raises(BlockingIOError):
            trap.accept()


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S58_two_pictures_that_begin_alike_are_both_refused_in_any_order(dialect, alive):
    alike = [part(dialect, data_url("image/jpeg", PICTURES["image/jpeg"] + bytes(4096) + end)) for end in (b"a", b"b")]
    for parts in (alike, alike[::-1], alike[:1], alike[1:]):
        assert refused(alive, dialect, asked(dialect, *parts)) == f"{key_of(dialect)}[0].content[0]"


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S59_no_endpoint_counts_or_renders_a_picture_that_it_does_not_read(dialect, alive):
    grid = part(dialect, data_url("image/png", png(4, 4, 8, 0, bytes(range(4)))))
    count = {"messages": "/v1/messages/count_tokens", "responses": "/v1/responses/input_tokens", "chat": "/tokenize"}
    for path in (PATHS[dialect], f"/apply-template?dialect={dialect}", count[dialect]):
        assert refused(alive, dialect, asked(dialect, grid), path) == f"{key_of(dialect)}[0].content[0]"


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S60_video_is_refused_and_a_picture_of_the_past_may_be_noted(dialect, alive):
    if dialect != "messages":  # that protocol has no videos
        for kind in ("video_url", "video", "input_video"):
            video = {"type": kind, kind: {"url": "data:video/mp4;base64,AAAA"}}
            assert refused(alive, dialect, asked(dialect, video), refusal="video.not_offered").endswith("content[0]")
    past = asked(dialect, part(dialect, data_url("image/avif", PICTURES["image/avif"])), enable_thinking=False)
    past[key_of(dialect)] += [{"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Say ok."}]
    past["max_output_tokens" if dialect == "responses" else "max_tokens"] = 2
    assert refused(alive, dialect, past) == f"{key_of(dialect)}[0].content[0]"
    noted = {**past, "on_bad_image": "placeholder"}
    status, _, answer = request(alive.url, "POST", PATHS[dialect], noted)
    assert status == 200, answer
    prompt = json.loads(request(alive.url, "POST", f"/apply-template?dialect={dialect}", noted)[2])["prompt"]
    assert "[image omitted: image.not_offered]What is it?" in prompt
    last = asked(dialect, part(dialect, data_url("image/avif", PICTURES["image/avif"])), on_bad_image="placeholder")
    assert refused(alive, dialect, last) == f"{key_of(dialect)}[0].content[0]"
