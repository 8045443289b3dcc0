"""A drafter that knows nothing: the tokens are the same, and its guesses are soon no longer asked for."""

import json
import pathlib
import random
import shutil
import struct

import pytest

from conftest import ROOT, Server, Talk, assert_alive


def copy_with_random_weights(folder: pathlib.Path):
    shutil.copytree(ROOT / "models/fledgling/drafter", folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    rng = random.Random(1)
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", "the bytes of another type are not written here"
        low, high = (begin + offset for offset in entry["data_offsets"])
        # Of magnitude 2^-6 to 2^-4, either sign.
        data[low:high] = b"".join(struct.pack("<H", rng.randrange(2) << 15 | rng.randrange(121 << 7, 124 << 7))
                                  for _ in range((high - low) // 2))
    path.write_bytes(data)


@pytest.fixture(scope="module")
def misled(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafter") / "drafter"
    copy_with_random_weights(folder)
    running = Server(program, "--drafter", str(folder))
    yield running
    assert running.stop() == 0


@pytest.mark.cells(thinks=(False,))
def test_S17_a_drafter_that_is_never_right_changes_nothing_and_costs_little(cell, misled, server):
    # Warm text repeats too little for copies of it to hold.
    fields = {"temperature": 1.5, "max_tokens": 220, "ignore_eos": True, "cache_prompt": False}
    reply = Talk(misled, cell).once(["Tell me a long story."], **fields)
    plain = Talk(server, cell).once(["Tell me a long story."], **{**fields, "draft": False})
    assert reply.told() == plain.told() and reply.n_reply == 220
    if cell.drafts:
        assert 0 < reply.roost["rounds_plain"] < reply.roost["rounds"]  # it was tried
        assert reply.roost["accept_length"] < 1.2
        assert reply.roost["rounds_plain"] > 0.8 * reply.roost["rounds"]
        shallow = Talk(misled, cell).once(["Tell me a long story."], **fields, draft_max=1)
        assert shallow.told() == plain.told()
    assert_alive(misled)
    if cell.drafts:  # once in the life of the server
        assert sum("drafts_do_not_hold" in line for line in misled.log) == 1
