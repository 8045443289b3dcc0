"""The sum of the deltas is the whole reply, field by field: every member of it but ids, times and counts of the cache.

stream x thinking x tools x drafts, in every dialect; what a client has put together out of the events of one request
is compared with the body of another, streamed and whole, with and without drafts.
"""

import json

import pytest

import dialects
from dialects import PATHS, body_of, must_call, request, tool

MOVE = {"type": "object", "properties": {"to": {"type": "string", "maxLength": 12}, "far": {"type": "boolean"}},
        "required": ["to", "far"], "additionalProperties": False}
LOGPROBS = {"chat": {"logprobs": True, "top_logprobs": 2}, "completions": {"logprobs": 2},
            "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2}, "messages": {}}
# Of one request alone: ids, times, what the cache held, how the tokens were found.
OWN = ("id", "created", "created_at", "completed_at", "timings", "item_id", "call_id", "signature",
       "encrypted_content", "prompt_tokens_details", "input_tokens_details", "cache_read_input_tokens", "input_tokens")
SAME_OF_ROOST = ("seed", "token_sha256", "prompt_sha256", "finish_detail", "max_tokens_applied", "loop_guard")


def comparable(value):
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    # What is nothing in the one may be absent in the other: content beside calls, `refusal`.
    out = {key: comparable(item) for key, item in value.items() if key not in OWN and item not in (None, "")}
    if isinstance(value.get("roost"), dict):
        out["roost"] = {key: value["roost"][key] for key in SAME_OF_ROOST}
    if isinstance(value.get("logprob"), float):
        out["logprob"] = round(value["logprob"], 4)
    return out


def add(total, delta):
    """Texts and lists grow, members of objects are added to, everything else is told once."""
    for key, value in delta.items():
        old = total.get(key)
        if key == "tool_calls" and value and "index" in value[0]:
            calls = total.setdefault(key, [])
            for call in value:
                if call["index"] == len(calls):
                    calls.append({})
                add(calls[call["index"]], {name: item for name, item in call.items() if name != "index"})
        elif isinstance(value, dict):
            total[key] = old or {}
            add(total[key], value)
        elif isinstance(value, list):
            total[key] = (old or []) + value
        elif isinstance(value, str) and isinstance(old, str) and key not in ("finish_reason", "type", "role"):
            total[key] = old + value
        elif value is not None or key not in total:
            total[key] = value


def sum_of_chunks(events, inner, kind):
    """Chat and Completions: `inner` holds what grows."""
    out, choice = {}, {"index": 0}
    for event in events:
        assert event["object"] == (kind + ".chunk" if inner == "delta" else kind)
        out.update({key: value for key, value in event.items() if key not in ("choices", "usage") or value})
        for one in event["choices"]:
            assert one.pop("index") == 0
            add(choice, {"message" if key == "delta" else key: value for key, value in one.items()})
    return {**out, "object": kind, "choices": [choice]}


def ids_of(events):
    return [token for event in events for token in event.get("token_ids", [])]


def sum_of_response(events):
    """The items as their own events tell them; the rest from the last one."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    output = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            output.append(event["item"])
        elif kind == "response.content_part.added":
            output[-1].setdefault("content", []).append(event["part"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            part = output[event["output_index"]]["content"][event["content_index"]]
            part["text"] += event["delta"]
            part.setdefault("logprobs", []).extend(event.get("logprobs") or [])
        elif kind == "response.function_call_arguments.delta":
            output[event["output_index"]]["arguments"] += event["delta"]
        elif kind == "response.output_item.done":
            output[-1]["status"] = event["item"]["status"]
            for part in output[-1].get("content", []):
                if part["type"] != "output_text":
                    del part["logprobs"]
            assert comparable(event["item"]) == comparable(output[-1])
    return {**events[-1]["response"], "output": output, "token_ids": ids_of(events)}


def sum_of_message(events):
    out = dict(events[0]["message"])
    blocks, pieces = [], []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
            pieces.append("")
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            pieces[-1] += delta.get("partial_json", "")
            add(blocks[-1], {key: value for key, value in delta.items() if key not in ("type", "partial_json")})
        elif event["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"] = json.loads(pieces[-1])
        elif event["type"] == "message_delta":
            out.update(event["delta"])
            out["usage"].update(event["usage"])
            out.update({key: event[key] for key in ("timings", "roost")})
    return {**out, "content": blocks, "token_ids": ids_of(events)}


SUMS = {"chat": lambda events: sum_of_chunks(events, "delta", "chat.completion"),
        "completions": lambda events: sum_of_chunks(events, "text", "text_completion"),
        "responses": sum_of_response, "messages": sum_of_message}


def told(server, dialect, fields, stream):
    body = body_of(dialect, ["Where to?"], stream, **fields)
    status, _, answer = request(server.url, "POST", PATHS[dialect], body)
    assert status == 200, answer
    if not stream:
        return comparable(json.loads(answer))
    data = [line[6:] for record in answer.split("\n\n") for line in record.split("\n") if line.startswith("data: ")]
    assert (data[-1] == "[DONE]") == (dialect in ("chat", "completions"))
    return comparable(SUMS[dialect]([json.loads(one) for one in data if one != "[DONE]"]))


@pytest.mark.cells()
def test_the_sum_of_the_deltas_is_the_whole_reply_field_by_field(talk):
    dialect = talk.dialect
    tools = {"tools": [tool(dialect, "move", MOVE)], "tool_choice": must_call(dialect)}
    plain_text = {"max_tokens": 40, "min_tokens": 8}
    bound = {**dialects.schema_fields(dialect, MOVE), "max_tokens": 90}
    for more in (plain_text, bound, *([] if dialect == "completions" else [{**tools, "max_tokens": 90}])):
        for temperature in (0, 1):
            fields = talk.fields({**LOGPROBS[dialect], "temperature": temperature, "return_token_ids": True, **more})
            if talk.cell.thinks and dialect != "completions":
                fields["thinking_budget"] = 10
            mine = told(talk.server, dialect, fields, talk.cell.is_stream)
            assert mine == told(talk.server, dialect, fields, not talk.cell.is_stream)
            assert mine == told(talk.server, dialect, {**fields, "draft": False, "cache_prompt": False}, True)
