"""A server that ends and comes back: with a cache folder nothing changes but what must be read."""

import pytest

from conftest import Server, Talk
from dialects import must_call, tool

CONVERSATIONS = ("chat", "responses", "messages")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
          "additionalProperties": False}


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(False,))
def test_S01_a_call_behind_a_long_system_text_is_made_after_a_restart(cell, program, tmp_path):
    offered = [tool(cell.dialect, f"tool_{i}", SCHEMA, description="Does one thing of many.") for i in range(12)]
    fields = {"tools": offered, "tool_choice": must_call(cell.dialect, "tool_3"), "max_tokens": 80}
    system = {"system": "red green blue " * 150}
    told = {}
    for start in range(2):
        running = Server(program, "--cache-dir", str(tmp_path / "cache"))
        talk = Talk(running, cell)
        for question in ("X", "Y") if start == 0 else ("Y", "X"):
            reply = talk.once([system, question], **fields)
            assert [name for name, _ in reply.calls] == ["tool_3"]
            assert told.setdefault(question, reply.told()) == reply.told()
            if start == 1:
                assert reply.n_cached > 0
        assert running.stop() == 0


@pytest.mark.cells(thinks=(False,))
def test_S09_answers_after_a_restart_are_those_before(cell, program, tmp_path):
    told = []
    for _ in range(2):
        running = Server(program, "--cache-dir", str(tmp_path / "cache"))
        talk = Talk(running, cell)
        told.append([talk.once([f"The code is {i * 37}. Repeat the code."], max_tokens=12) for i in range(4)])
        assert running.stop() == 0
    assert [reply.told() for reply in told[0]] == [reply.told() for reply in told[1]]
    for reply in told[1]:
        fresh_or_kept = reply.roost["cached_from"]
        assert fresh_or_kept in ("none", "ram", "disk")
        assert (reply.n_cached > 0) == (fresh_or_kept != "none")
