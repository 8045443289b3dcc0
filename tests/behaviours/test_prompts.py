"""From bodies to prompts: one conversation is one prompt, hostile ones are refused by name."""

import json

import pytest

import dialects
from dialects import PATHS, ask, body_of, prompt_ids, request, tool

CONVERSATIONS = ("chat", "responses", "messages")


def ids(server, dialect, turns, **fields):
    return prompt_ids(server, dialect, turns, **{"enable_thinking": False, **fields})


def text_of(server, dialect, body):
    status, _, answer = request(server.url, "POST", f"/apply-template?dialect={dialect}", body)
    assert status == 200, answer
    return json.loads(answer)["prompt"]


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S21_system_turns_are_merged_or_stay_at_their_place(dialect, alive):
    two = ids(alive, dialect, [{"system": "A"}, {"system": "B"}, "Hi"])
    assert two == ids(alive, dialect, [{"system": "A\n\nB"}, "Hi"])
    turns = ["Hi", {"content": "Yes"}, {"system": "Late."}, "Go"]
    late = ids(alive, dialect, turns)
    before = ids(alive, dialect, turns[:2] + ["Go"])
    shared = next(i for i, (a, b) in enumerate(zip(late, before)) if a != b)
    assert shared >= len(ids(alive, dialect, turns[:1])) - 8  # what stands before it is not moved
    assert "Late." in text_of(alive, dialect, body_of(dialect, turns))
    assert ask(alive, dialect, turns, enable_thinking=False, max_tokens=1).status == 200
    developer = {"role": "developer", "content": "A"}
    if dialect == "chat":
        said = {"messages": [developer, {"role": "user", "content": "Hi"}]}
        assert text_of(alive, dialect, said) == text_of(alive, dialect, body_of(dialect, [{"system": "A"}, "Hi"]))


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S22_arguments_of_the_past_are_never_refused(dialect, alive):
    as_object = ids(alive, dialect, ["Hi", {"calls": [("f", '{"a": 1}')]}, {"tool": "x"}])
    assert as_object
    if dialect == "messages":
        for value in ({"a": 1}, None, "", "null", "[1,2]", [1, 2], 3):
            turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": value}]}
            body = {"messages": [{"role": "user", "content": "Hi"}, turn,
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}]}
            assert "<function=f>" in text_of(alive, dialect, body)
        return
    empty = ids(alive, dialect, ["Hi", {"calls": [("f", "{}")]}, {"tool": "x"}])
    for text in ("", " ", "null"):
        assert ids(alive, dialect, ["Hi", {"calls": [("f", text)]}, {"tool": "x"}]) == empty
    for text in ("[1,2]", '{"a": ', "3"):
        body = body_of(dialect, ["Hi", {"calls": [("f", text)]}, {"tool": "x"}])
        assert f"<parameter=arguments>\n{text}\n</parameter>" in text_of(alive, dialect, body)


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S23_results_of_tools_stay_byte_for_byte(dialect, alive):
    for text in ("0012", "1e5", "null", '{"b":1, "a":2}', "[]"):
        body = body_of(dialect, ["Hi", {"calls": [("f", "{}")]}, {"tool": text}])
        assert f"<tool_response>\n{text}\n</tool_response>" in text_of(alive, dialect, body)


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S24_empty_contents_are_one_and_unknown_parts_are_refused(dialect, alive):
    key, kind = ("input", "input_text") if dialect == "responses" else ("messages", "text")
    parts = [{"type": kind, "text": "Hel"}, {"type": kind, "text": "lo"}]
    joined = {key: [{"role": "user", "content": parts}]}
    assert text_of(alive, dialect, joined) == text_of(alive, dialect, body_of(dialect, ["Hello"]))
    texts = set()
    for content in (None, "", []):
        turn = {"role": "assistant", "content": content}
        turns = [{"role": "user", "content": "Hi"}, turn, {"role": "user", "content": "Go"}]
        texts.add(text_of(alive, dialect, {key: turns}))
    assert len(texts) == 1
    unknown = {key: [{"role": "user", "content": [{"type": "smell", "smell": "x"}]}]}
    status, _, answer = request(alive.url, "POST", PATHS[dialect], unknown)
    error = json.loads(answer)["error"]
    assert (status, error["refusal"], error["param"]) == (400, "request.unsupported_content", f"{key}[0].content[0]")


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S26_text_of_any_script_goes_in_as_it_is(dialect, alive):
    schema = {"type": "object", "properties": {"é": {"type": "string", "enum": ["😀", "日本"]}}}
    body = body_of(dialect, ["Hi", {"calls": [("工具", '{"é": "日本"}')]}, {"tool": "😀"}],
                   tools=[tool(dialect, "工具", schema, description="说明 “引号”")])
    text = text_of(alive, dialect, body)
    for piece in ("说明 “引号”", '["😀", "日本"]', "<function=工具>\n<parameter=é>\n日本\n</parameter>"):
        assert piece in text


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S27_earlier_reasoning_has_one_meaning(dialect, alive):
    def text(turn):
        key = "input" if dialect == "responses" else "messages"
        turns = turn if isinstance(turn, list) else [turn]
        return text_of(alive, dialect, {key: [{"role": "user", "content": "Hi"}, *turns, {"role": "user", "content": "Go"}]})
    inline = text({"role": "assistant", "content": "<think>\nwhy\n</think>\n\nYes"})
    assert inline == text({"role": "assistant", "content": "why\n</think>\n\nYes"})
    if dialect == "chat":
        for name in ("reasoning_content", "reasoning", "thinking"):
            assert inline == text({"role": "assistant", "content": "Yes", name: "why"})
        part = {"type": "thinking", "thinking": "why"}
        assert inline == text({"role": "assistant", "content": [part, {"type": "text", "text": "Yes"}]})
    else:
        assert inline == text(dialects.ASSISTANT[dialect]("why", "Yes", []))


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S28_one_conversation_is_one_prompt(dialect, alive):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    turns = [{"system": "Be short."}, "Hi", {"reasoning": "why", "content": "I look.", "calls": [("f", '{"city": "Oslo"}')]},
             {"tool": "sun"}]
    told = [ids(alive, d, turns, tools=[tool(d, "f", schema, description="x")]) for d in ("chat", dialect)]
    assert told[0] == told[1]
    reply = ask(alive, dialect, turns, tools=[tool(dialect, "f", schema, description="x")], enable_thinking=False,
                max_tokens=1)
    assert reply.n_prompt == len(told[0])
    count = {"messages": "/v1/messages/count_tokens", "responses": "/v1/responses/input_tokens"}.get(dialect)
    if count:
        body = body_of(dialect, turns, tools=[tool(dialect, "f", schema, description="x")], enable_thinking=False)
        assert json.loads(request(alive.url, "POST", count, body)[2])["input_tokens"] == len(told[0])


@pytest.mark.cells()
def test_S61_nesting_without_end_is_refused(dialect, alive):
    for n in (10_000, 1_000_000):
        deep = "[" * n + "]" * n
        for key in ("metadata", "messages", "tools", "input", "prompt"):
            status, _, answer = request(alive.url, "POST", PATHS[dialect], f'{{"{key}":{deep}}}')
            assert (status, json.loads(answer)["error"]["refusal"]) == (400, "json.too_deep")


@pytest.mark.cells()
def test_S62_empty_prompts_and_wrong_numbers_are_refused_by_name(dialect, alive):
    key = {"completions": "prompt", "responses": "input"}.get(dialect, "messages")
    most = "max_output_tokens" if dialect == "responses" else "max_tokens"
    for value in ([], [[]], {}, True, 1):
        assert request(alive.url, "POST", PATHS[dialect], {key: value})[0] == 400
    fine = body_of(dialect, ["Hi"])
    for value, wanted in ((None, 200), (0, 400), (-1, 400), ("5", 400), (1.5, 400)):
        status, _, answer = request(alive.url, "POST", PATHS[dialect],
                                    {**fine, most: value, "stop_token_ids": list(range(60)), "enable_thinking": False}
                                    if value is None and dialect != "completions" else {**fine, most: value})
        assert status == wanted, answer
    huge = request(alive.url, "POST", PATHS[dialect], {**fine, most: 1_000_000_000_000, "temperature": 0,
                                                       **schema_of_one(dialect)})
    assert huge[0] == 200, huge[2]


def schema_of_one(dialect):
    """A reply that ends soon whatever the model likes."""
    out = {"structured_outputs": {"choice": ["ok"]}}
    return out if dialect == "completions" else {**out, "enable_thinking": False}


@pytest.mark.cells()
def test_S63_a_prompt_beyond_the_context_is_refused_in_the_fixed_words(dialect, alive):
    props = json.loads(request(alive.url, "GET", "/props")[2])
    context = props["context_length"]
    text = "a b " * context
    status, _, answer = request(alive.url, "POST", PATHS[dialect], body_of(dialect, [text]))
    error = json.loads(answer)["error"]
    assert (status, error["refusal"]) == (400, "request.too_long")
    assert f"this model's maximum context length is {context} tokens" in error["message"]
    assert f" > {context - 1} maximum" in error["message"]


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S69_foreign_fields_and_hosted_tools_are_ignored_and_listed(dialect, alive):
    hosted = [{"type": "web_search_20250305", "name": "web_search"}] if dialect == "messages" else [{"type": "web_search"}]
    offered = hosted + [tool(dialect, "f", {"type": "object"})]
    reply = ask(alive, dialect, ["Hi"], tools=offered, enable_thinking=False, max_tokens=1, metadata={"a": "b"},
                service_tier="auto", user="me", invented={"x": 1})
    assert reply.status == 200, reply.body
    listed = reply.headers["x-roost-ignored"].split(",")
    for pointer in ("/tools/0", "/invented", "/service_tier"):
        assert pointer in listed


@pytest.mark.cells()
def test_S72_foreign_pages_and_hosts_are_kept_out(dialect, alive):
    body = json.dumps(body_of(dialect, ["Hi"]))
    path = PATHS[dialect]
    cases = (({"Origin": "http://evil.example"}, 403, "http.origin_not_allowed"),
             ({"Host": "evil.example"}, 421, "http.host_not_allowed"),
             ({"Content-Type": "text/plain"}, 415, "http.content_type"))
    for headers, status, refusal in cases:
        got, head, answer = request(alive.url, "POST", path, body, headers)
        assert (got, json.loads(answer)["error"]["refusal"]) == (status, refusal)
        assert not any(key.lower().startswith("access-control") for key in head)
    status, head, _ = request(alive.url, "OPTIONS", path)
    assert status == 204 and "POST" in head["Allow"]
    assert not any(key.lower().startswith("access-control") for key in head)
