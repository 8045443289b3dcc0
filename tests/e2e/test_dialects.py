"""The other dialects through the official clients, on the bundled model: one conversation, one reply."""

import http.client
import json
import os
import urllib.parse

import anthropic
import openai
import pytest
from conftest import Server

COUNT = "Count from 1 to 40."
COUNTED = ", ".join(str(i) for i in range(1, 41))
GREEDY = {"temperature": 0}  # a field that this client has no argument for
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(scope="module")
def chat(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=300)


def post(server, path, body):
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=300)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def sha(extra):
    return extra["roost"]["token_sha256"]


def test_four_dialects_say_the_same_tokens(server, chat, claude):
    messages = [{"role": "user", "content": COUNT}]
    off = {"enable_thinking": False}
    one = chat.chat.completions.create(model="x", messages=messages, temperature=0, extra_body=off)
    two = chat.responses.create(model="x", input=COUNT, temperature=0, extra_body=off)
    three = claude.messages.create(model="x", messages=messages, max_tokens=400, extra_body=GREEDY)
    _, prompt = post(server, "/apply-template", {"messages": messages, **off})
    four = chat.completions.create(
        model="x", prompt=prompt["token_ids"], temperature=0, max_tokens=400
    )
    assert one.choices[0].message.content == COUNTED
    assert two.output_text == COUNTED
    assert three.content[0].text == COUNTED
    assert four.choices[0].text == COUNTED
    assert (three.stop_reason, two.status) == ("end_turn", "completed")
    hashes = {sha(reply.model_extra) for reply in (one, two, three, four)}
    assert len(hashes) == 1
    n_prompt = one.usage.prompt_tokens
    assert two.usage.input_tokens == four.usage.prompt_tokens == n_prompt
    assert three.usage.input_tokens + three.usage.cache_read_input_tokens == n_prompt
    counted = claude.messages.count_tokens(model="x", messages=messages)
    assert counted.input_tokens == n_prompt


def test_an_echoed_prompt_is_told_as_the_reply_was(server, chat):
    """As a harness scores text: the log probabilities of a reply, asked for as those of a prompt."""
    _, prompt = post(server, "/apply-template", {
        "messages": [{"role": "user", "content": COUNT}], "enable_thinking": False})
    reply = chat.completions.create(model="x", prompt=prompt["token_ids"], temperature=0,
                                    max_tokens=20, logprobs=2, extra_body={"return_token_ids": True})
    drawn = reply.choices[0]
    again = chat.completions.create(model="x", prompt=prompt["token_ids"] + drawn.token_ids,
                                    echo=True, max_tokens=0, logprobs=2)
    told = again.choices[0]
    assert told.text.endswith(drawn.text) and told.logprobs.token_logprobs[0] is None
    assert len(told.logprobs.tokens) == again.usage.prompt_tokens
    assert again.usage.completion_tokens == 0
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert getattr(told.logprobs, name)[-20:] == getattr(drawn.logprobs, name)


@pytest.mark.parametrize("thinking", [False, True])
def test_a_messages_stream_adds_up_to_the_whole(claude, thinking):
    fields = dict(
        model="x", max_tokens=120, extra_body=GREEDY,
        messages=[{"role": "user", "content": "What is 12 + 30?"}],
        thinking={"type": "enabled", "budget_tokens": 1024} if thinking else {"type": "disabled"},
    )
    whole = claude.messages.create(**fields)
    with claude.messages.stream(**fields) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert [block.model_dump() for block in final.content] == [
        block.model_dump() for block in whole.content
    ]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert [block.type for block in whole.content][:1] == (["thinking"] if thinking else ["text"])


@pytest.mark.parametrize("thinking", [False, True])
def test_a_responses_stream_adds_up_to_the_whole(chat, thinking):
    fields = dict(
        model="x", input="What is 12 + 30?", temperature=0, max_output_tokens=120,
        extra_body={"enable_thinking": thinking},
    )
    whole = chat.responses.create(**fields)
    with chat.responses.stream(**fields) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert final.output_text == whole.output_text
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert final.usage.input_tokens == whole.usage.input_tokens
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_tool_loop_runs_in_chat_and_messages(chat, claude):
    question = [{"role": "user", "content": "What is the weather in Oslo?"}]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    reply = chat.chat.completions.create(
        model="x", messages=question, tools=tools, temperature=0, max_tokens=300,
        extra_body={"enable_thinking": False},
    )
    other = claude.messages.create(
        model="x", messages=question, max_tokens=300, extra_body=GREEDY,
        tools=[{"name": "get_weather", "input_schema": WEATHER}],
    )
    message = reply.choices[0].message
    calls = message.tool_calls or []
    uses = [block for block in other.content if block.type == "tool_use"]
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        (u.name, u.input) for u in uses
    ]
    assert sha(reply.model_extra) == sha(other.model_extra)
    for call in calls:
        assert reply.choices[0].finish_reason == "tool_calls"
        assert call.id.startswith("call_") and uses[0].id.startswith("toolu_")
    history = question + [
        message.model_dump(exclude_none=True),
        *({"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in calls),
        {"role": "user", "content": "Thanks."},
    ]
    again = chat.chat.completions.create(
        model="x", messages=history, tools=tools, temperature=0, max_tokens=60,
        extra_body={"enable_thinking": False},
    )
    assert again.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_a_budget_bounds_reasoning(chat):
    reply = chat.chat.completions.create(
        model="x", messages=[{"role": "user", "content": "What is 12 + 30?"}], temperature=0,
        max_tokens=200, extra_body={"enable_thinking": True, "thinking_budget": 4},
    )
    assert reply.usage.completion_tokens_details.reasoning_tokens <= 4 + 3
    assert "</think>" not in (reply.choices[0].message.content or "")


def test_choices_are_what_each_is_alone(chat):
    fields = dict(
        model="x", messages=[{"role": "user", "content": "Tell me a short story."}],
        temperature=1, max_tokens=40, extra_body={"enable_thinking": False},
    )
    three = chat.chat.completions.create(n=3, seed=5, **fields)
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    for i, choice in enumerate(three.choices):
        alone = chat.chat.completions.create(seed=5 + i, **fields)
        assert alone.choices[0].message.content == choice.message.content
        assert sha(alone.model_extra) == three.model_extra["roost"]["token_sha256"][i]


def test_probabilities_are_those_of_the_raw_logits(chat):
    fields = dict(
        model="x", messages=[{"role": "user", "content": COUNT}], temperature=0, max_tokens=12,
        logprobs=True, top_logprobs=5, extra_body={"enable_thinking": False},
    )
    plain = chat.chat.completions.create(**fields).choices[0].logprobs.content
    assert len(plain) == 12
    for entry in plain:
        assert entry.logprob <= 0
        assert [t.logprob for t in entry.top_logprobs] == sorted(
            (t.logprob for t in entry.top_logprobs), reverse=True
        )
        # Greedy: the drawn token is the likeliest one.
        assert entry.top_logprobs[0].token == entry.token
        assert bytes(entry.bytes).decode() == entry.token
    hot = chat.chat.completions.create(**{**fields, "temperature": 2.0, "seed": 1, "top_p": 0.0001})
    assert [e.logprob for e in hot.choices[0].logprobs.content] == [e.logprob for e in plain]


def test_penalties_and_biases_change_what_is_drawn(chat):
    fields = dict(
        model="x", messages=[{"role": "user", "content": COUNT}], temperature=0, max_tokens=20
    )
    off = {"enable_thinking": False}
    plain = chat.chat.completions.create(
        **fields, extra_body={**off, "return_token_ids": True}
    ).choices[0]
    first = plain.model_extra["token_ids"][0]
    banned = chat.chat.completions.create(
        **fields, logit_bias={str(first): -100}, extra_body={**off, "return_token_ids": True}
    ).choices[0]
    assert first not in banned.model_extra["token_ids"]
    for punished in [{"frequency_penalty": 2.0}, {"repetition_penalty": 10.0}]:
        reply = chat.chat.completions.create(
            **{**fields, "max_tokens": 150}, extra_body={**off, **punished}
        )
        assert not COUNTED.startswith(reply.choices[0].message.content), punished
    longer = chat.chat.completions.create(
        model="x", messages=[{"role": "user", "content": "Count from 1 to 5."}], temperature=0,
        max_tokens=60, extra_body={**off, "min_tokens": 40},
    )
    assert longer.usage.completion_tokens >= 40


def test_an_assistant_turn_is_continued(chat, claude):
    messages = [
        {"role": "user", "content": COUNT},
        {"role": "assistant", "content": "1, 2, 3,"},
    ]
    reply = claude.messages.create(model="x", messages=messages, max_tokens=300, extra_body=GREEDY)
    assert reply.content[0].text.lstrip().startswith("4, 5, 6")
    other = chat.chat.completions.create(model="x", messages=messages, temperature=0, max_tokens=300)
    assert sha(other.model_extra) == sha(reply.model_extra)


def test_a_stored_response_is_gone_on_with(chat):
    first = chat.responses.create(
        model="x", input="Count from 1 to 5.", temperature=0, extra_body={"enable_thinking": False}
    )
    second = chat.responses.create(
        model="x", input="Count from 1 to 5.", previous_response_id=first.id, temperature=0,
        extra_body={"enable_thinking": False},
    )
    assert second.usage.input_tokens > first.usage.input_tokens
    assert chat.responses.retrieve(first.id).output_text == first.output_text
    chat.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        chat.responses.retrieve(first.id)


def test_errors_reach_both_clients_as_their_own(chat, claude):
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model="x", max_tokens=5, messages=[])
    assert refused.value.body["error"]["refusal"] == "request.missing_field"
    with pytest.raises(openai.BadRequestError) as other:
        chat.responses.create(model="x", input="x", truncation="auto")
    assert other.value.code == "unsupported_parameter"


def test_keys_let_in_those_who_have_one(program, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:the-key-of-ann\n")
    os.chmod(keys, 0o600)
    server = Server(program, "--api-key-file", str(keys))
    url = server.url + "/v1"
    good = openai.OpenAI(base_url=url, api_key="the-key-of-ann", max_retries=0, timeout=60)
    bad = openai.OpenAI(base_url=url, api_key="another-key-here", max_retries=0, timeout=60)
    assert good.models.list().data
    with pytest.raises(openai.AuthenticationError) as refused:
        bad.models.list()
    assert refused.value.code == "invalid_api_key"
    claude = anthropic.Anthropic(base_url=server.url, api_key="the-key-of-ann", max_retries=0)
    assert claude.messages.count_tokens(
        model="x", messages=[{"role": "user", "content": "Hi"}]
    ).input_tokens
    assert server.stop() == 0
    assert "the-key-of-ann" not in "".join(server.log)


def test_metrics_are_in_the_text_format(server):
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    seen = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in seen, "a metric is told twice"
            seen[name] = kind
        elif not line.startswith("#"):
            name, value = line.split("{")[0], line.rsplit(" ", 1)[1]
            base = name
            for suffix in ("_bucket", "_sum", "_count"):
                if name.endswith(suffix) and name[: -len(suffix)] in seen:
                    base = name[: -len(suffix)]
            assert base in seen, line
            float(value)
    assert seen["roost_ttft_seconds"] == "histogram"
    assert all(n.endswith("_total") for n, kind in seen.items() if kind == "counter")


CALLED = {"type": "object", "properties": {"day": {"enum": ["mon", "tue"]}, "n": {"type": "integer", "minimum": 1}},
          "required": ["day", "n"], "additionalProperties": False}


def test_calls_that_must_come_come_and_echoed_ones_are_not_read_again(chat, claude):
    tools = [{"type": "function", "function": {"name": "book", "parameters": CALLED, "strict": True}}]
    messages = [{"role": "user", "content": "Book a table."}]
    fields = dict(model="x", tools=tools, tool_choice="required", temperature=1, seed=3, max_tokens=100,
                  parallel_tool_calls=False,
                  # Without drafts: with them the last state may lie some tokens before the reply's end.
                  extra_body={"enable_thinking": False, "cache_salt": "echo", "draft": False})
    first = chat.chat.completions.create(messages=messages, **fields)
    call = first.choices[0].message.tool_calls[0]
    assert call.function.name == "book" and first.choices[0].finish_reason == "tool_calls"
    assert json.loads(call.function.arguments)["day"] in ("mon", "tue")
    messages += [first.choices[0].message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": "booked"}]
    second = chat.chat.completions.create(messages=messages, **fields)
    kept = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= kept - 1
    assert second.model_extra["roost"]["replayed_tokens"] == first.usage.completion_tokens
    # A call that may come and ends the reply; the next turn goes on behind it.
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    weather = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    fields = dict(model="x", tools=[{"type": "function", "function": {"name": "get_weather", "parameters": weather}}],
                  temperature=0, max_tokens=100, parallel_tool_calls=False, extra_body={"enable_thinking": False})
    first = chat.chat.completions.create(messages=asked, **fields)
    call = first.choices[0].message.tool_calls[0]
    asked += [first.choices[0].message.model_dump(exclude_none=True),
              {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second = chat.chat.completions.create(messages=asked, **fields)
    kept = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= kept - 1
    reply = claude.messages.create(
        model="x", max_tokens=100, messages=[{"role": "user", "content": "Book a table."}],
        tools=[{"name": "book", "input_schema": CALLED}], tool_choice={"type": "tool", "name": "book"}, extra_body=GREEDY,
    )
    assert [block.type for block in reply.content] == ["tool_use"] and reply.stop_reason == "tool_use"
    assert set(reply.content[0].input) == {"day", "n"}
