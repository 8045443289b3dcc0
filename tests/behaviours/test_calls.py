"""Calls: a loop of them costs no reading again, they are forced by grammar, and many tools are quick."""

import http.client
import json
import urllib.parse

import pytest

import dialects
from dialects import as_turn, must_call, tool

CONVERSATIONS = ("chat", "responses", "messages")
MOVE = {"type": "object", "properties": {"to": {"enum": ["north", "south", "east"]},
                                         "steps": {"type": "integer", "minimum": 1, "maximum": 99}},
        "required": ["to", "steps"], "additionalProperties": False}
LOOK = {"type": "object", "properties": {"far": {"type": "boolean"}}, "required": ["far"],
        "additionalProperties": False}


def tools(dialect, **more):
    return [tool(dialect, "move", MOVE, **more), tool(dialect, "look", LOOK, **more)]


def forced(talk, name=None):
    """Members that make a call come; reasoning is kept short."""
    out = {"tools": tools(talk.dialect), "tool_choice": must_call(talk.dialect, name), "max_tokens": 120}
    if talk.cell.thinks:
        out["thinking_budget"] = 12
    return out


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(True,))
def test_S07_a_loop_of_calls_reads_nothing_twice(talk):
    # A salt of its own: what other tests left behind must not help.
    fields = {**forced(talk, "move"), "cache_salt": str(talk.cell), "temperature": 1}
    turns, before = ["Go somewhere."], None
    for i in range(5):
        reply = talk.once(turns, **{**fields, "seed": i})
        assert reply.status == 200 and len(reply.calls) == 1, reply.body
        if before is not None:  # the previous prompt and its reply, but for the rows of its last round
            assert reply.n_cached >= before.n_prompt + before.n_reply - (16 if talk.cell.drafts else 1)
            assert reply.roost["replayed_tokens"] > 0
        turns += [as_turn(reply), {"tool": f"moved {i}"}]
        before = reply
    last = talk.once(turns + ["Thanks."], **fields)
    assert last.n_cached > 0
    first_question = len(talk.prompt_ids(turns[:1], tools=fields["tools"]))
    assert last.n_cached >= first_question - 8  # all but the header of the reply
    talk.ask(turns, **fields)


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(True,))
def test_S08_a_past_call_in_another_order_is_another_prompt_and_right(talk):
    fields = {**forced(talk, "move"), "cache_salt": "S08" + str(talk.cell)}
    turns = ["Go somewhere."]
    for _ in range(3):
        reply = talk.once(turns, **fields)
        turns += [as_turn(reply), {"tool": "moved"}]
    name, arguments = turns[1]["calls"][0]
    swapped = json.dumps(dict(reversed(json.loads(arguments).items())))
    turns[1]["calls"] = [(name, swapped)]
    after = talk.ask(turns, **fields)  # equals a fresh reply
    assert len(after.calls) == 1


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S37_required_and_named_calls_come(talk):
    any_call = talk.ask(["Hello"], **forced(talk), temperature=1)
    assert any_call.calls and not any_call.content
    for name, arguments in any_call.calls:
        value = json.loads(arguments)
        if name == "move":
            assert set(value) == {"to", "steps"} and value["to"] in MOVE["properties"]["to"]["enum"]
            assert isinstance(value["steps"], int) and 1 <= value["steps"] <= 99
        else:
            assert name == "look" and isinstance(value["far"], bool)
    named = talk.ask(["Hello"], **forced(talk, "look"), temperature=1)
    assert [name for name, _ in named.calls] == ["look"]
    ends = {"chat": "stop", "responses": "completed", "messages": "tool_use"}
    assert named.finish == ends[talk.dialect]
    none = {"type": "none"} if talk.dialect == "messages" else "none"
    assert not talk.ask(["Hello"], tools=tools(talk.dialect), tool_choice=none).calls
    for choice, offered in ((must_call(talk.dialect, "jump"), tools(talk.dialect)), (must_call(talk.dialect), [])):
        assert talk.once(["Hello"], tools=offered, tool_choice=choice).refusal == "request.unknown_tool"


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S36_one_call_where_parallel_ones_are_off(talk):
    choice = must_call(talk.dialect)
    one = {"tool_choice": {**choice, "disable_parallel_tool_use": True}} if talk.dialect == "messages" else {
        "tool_choice": choice, "parallel_tool_calls": False}
    for seed in range(3):
        assert len(talk.once(["Hello"], **{**forced(talk), **one, "temperature": 1, "seed": seed}).calls) == 1


AGENT_TEXT = 'Does "this" \\ and\nthat ] % of it. '


def agent_tools(dialect, n, text):
    kinds = ("string", "integer", "boolean", "string", "object", "array")
    fields = {f"field_{i}": {"type": kind, "description": text} for i, kind in enumerate(kinds)}
    return [tool(dialect, f"tool_{i}", {"type": "object", "properties": {**fields, f"own_{i}": {"type": "number"}},
                                        "required": ["field_0", f"own_{i}"]}, description=text) for i in range(n)]


def seconds_compiling(server):
    lines = dialects.request(server.url, "GET", "/metrics")[2].splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("roost_grammar_compile_seconds_sum"))


def status_and_leave(server, dialect, **fields):
    """The status comes when all is compiled and before the prompt is read, which a small CPU would take minutes for."""
    url = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    body = json.dumps(dialects.body_of(dialect, ["Hi"], stream=True, **fields))
    connection.request("POST", dialects.PATHS[dialect], body, {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S47_many_tools_compile_quickly(dialect, alive):
    fields = dict(tool_choice=must_call(dialect), enable_thinking=False, temperature=0)
    # The same again, and with other descriptions: of those no grammar is made.
    for n, text in ((60, AGENT_TEXT), (100, AGENT_TEXT), (200, AGENT_TEXT), (200, AGENT_TEXT), (200, "Other text.")):
        before = seconds_compiling(alive)
        assert status_and_leave(alive, dialect, tools=agent_tools(dialect, n, text), **fields) == 200
        assert seconds_compiling(alive) - before < 2  # the hard limit; milliseconds where nobody else computes
    short = [tool(dialect, f"tool_{i}", LOOK, description='a "b" \\ \n] %') for i in range(60)]
    reply = dialects.ask(alive, dialect, ["Hi"], tools=short, **fields, max_tokens=60)
    assert [name for name, _ in reply.calls if name.startswith("tool_")], reply
