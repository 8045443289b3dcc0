"""The Chat dialect through the official client, on the bundled model."""

import http.client
import json
import urllib.parse

import openai
import pytest

COUNT = [{"role": "user", "content": "Count from 1 to 40."}]
COUNTED = ", ".join(str(i) for i in range(1, 41))
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, messages=COUNT, extra=None, **fields):
    return client.chat.completions.create(
        model="fledgling", messages=messages, extra_body={**NO_THINKING, **(extra or {})}, **fields
    )


def collect(stream):
    """A stream put together: fields of the choice, and its usage."""
    out = {"content": "", "reasoning": "", "finish": None, "ids": [], "usage": None, "roost": None}
    for chunk in stream:
        if chunk.usage:
            out["usage"] = chunk.usage
        out["roost"] = (chunk.model_extra or {}).get("roost") or out["roost"]
        for choice in chunk.choices:
            out["content"] += choice.delta.content or ""
            out["reasoning"] += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            out["ids"] += (choice.model_extra or {}).get("token_ids") or []
            out["finish"] = choice.finish_reason or out["finish"]
    return out


def counts(usage):
    """What does not depend on the prefix cache."""
    details = usage.completion_tokens_details
    return usage.prompt_tokens, usage.completion_tokens, details.reasoning_tokens


def test_a_whole_greedy_reply_counts(client):
    reply = ask(client, temperature=0)
    choice = reply.choices[0]
    assert choice.message.content == COUNTED
    assert choice.finish_reason == "stop"
    assert "reasoning_content" not in (choice.message.model_extra or {})
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.model_extra["timings"]["predicted_n"] == reply.usage.completion_tokens


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_stream_adds_up_to_the_whole_reply(client, thinking, temperature):
    extra = {"chat_template_kwargs": {"enable_thinking": thinking}, "return_token_ids": True}
    fields = dict(temperature=temperature, seed=11, max_tokens=120)
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    whole = ask(client, messages, extra, **fields)
    stream = collect(
        ask(client, messages, extra, stream=True, stream_options={"include_usage": True}, **fields)
    )
    choice = whole.choices[0]
    assert stream["content"] == choice.message.content
    assert stream["reasoning"] == (choice.message.model_extra or {}).get("reasoning_content", "")
    assert stream["finish"] == choice.finish_reason
    assert stream["ids"] == choice.model_extra["token_ids"]
    assert counts(stream["usage"]) == counts(whole.usage)
    assert stream["roost"]["token_sha256"] == whole.model_extra["roost"]["token_sha256"]


def test_reasoning_leaves_under_its_own_name(client):
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    reply = ask(client, messages, extra, temperature=0, max_tokens=400)
    message = reply.choices[0].message
    assert message.model_extra["reasoning_content"]
    assert "</think>" not in message.content
    assert 0 < reply.usage.completion_tokens_details.reasoning_tokens <= reply.usage.completion_tokens
    hidden = ask(client, messages, {**extra, "include_reasoning": False}, temperature=0, max_tokens=400)
    assert "reasoning_content" not in (hidden.choices[0].message.model_extra or {})
    assert hidden.choices[0].message.content == message.content
    assert counts(hidden.usage) == counts(reply.usage)


def test_cut_inside_reasoning_is_all_reasoning(client):
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    reply = ask(client, extra=extra, temperature=0, max_tokens=4)
    choice = reply.choices[0]
    assert choice.message.content == ""
    assert choice.message.model_extra["reasoning_content"] != ""
    assert choice.finish_reason == "length"
    assert reply.usage.completion_tokens == 4


def test_a_returned_seed_repeats_the_reply(client):
    messages = [{"role": "user", "content": "Tell me a short story."}]
    first = ask(client, messages, temperature=1, max_tokens=60)
    seed = first.model_extra["roost"]["seed"]
    again = ask(client, messages, temperature=1, max_tokens=60, seed=seed)
    other = ask(client, messages, temperature=1, max_tokens=60)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.model_extra["roost"]["token_sha256"] == first.model_extra["roost"]["token_sha256"]
    assert other.model_extra["roost"]["seed"] != seed


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_reply_before_it(client, stream):
    reply = ask(client, temperature=0, stop=["12, ", "39"], stream=stream)
    if stream:
        out = collect(reply)
        content, finish = out["content"], out["finish"]
    else:
        content, finish = reply.choices[0].message.content, reply.choices[0].finish_reason
        assert reply.choices[0].model_extra["stop_reason"] == "12, "
    assert content == ", ".join(str(i) for i in range(1, 12)) + ", "
    assert finish == "stop"


def test_max_tokens_is_kept_and_clamped(client):
    assert ask(client, temperature=0, max_tokens=5).usage.completion_tokens == 5
    reply = ask(client, temperature=0, max_tokens=10**12)
    assert reply.choices[0].message.content == COUNTED
    assert reply.model_extra["roost"]["max_tokens_applied"] < 10**12


def test_a_tool_loop_of_the_past_renders(client):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]
    messages = [
        {"role": "user", "content": "How is the weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain, 7 degrees"},
    ]
    reply = ask(client, messages, temperature=0, max_tokens=60, tools=tools)
    assert reply.choices[0].message.content


def test_models_are_listed_and_found(client, server):
    assert [m.id for m in client.models.list()] == [server.model]
    assert client.models.retrieve(server.model).owned_by == "roost"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another/model")


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"extra": {"typical_p": 0.5}}, "typical_p"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.param == param
    assert refused.value.code == "unsupported_parameter"
    assert refused.value.body["refusal"] == "request.unsupported_field"


def test_a_stream_that_cannot_begin_is_a_plain_error(client):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, messages=[], stream=True)
    assert refused.value.param == "messages"


def test_a_prompt_too_long_is_refused_in_fixed_words(client, server):
    context = client.models.retrieve(server.model).model_extra["max_model_len"]
    words = "one two three four five six seven eight nine ten " * (context // 10 + 1)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, [{"role": "user", "content": words}])
    assert refused.value.code == "context_length_exceeded"
    assert f"> {context - 1} maximum" in refused.value.message
    assert f"maximum context length is {context} tokens" in refused.value.message


def test_ignored_fields_are_listed_in_a_header(client):
    raw = client.chat.completions.with_raw_response.create(
        model="x", messages=COUNT, max_tokens=1, user="u", extra_body={"odd": 1, **NO_THINKING}
    )
    assert set(raw.headers["X-Roost-Ignored"].split(",")) == {"/user", "/odd"}


def test_eight_streams_at_once_are_what_each_is_alone(client):
    from concurrent.futures import ThreadPoolExecutor

    prompts = [f"Count from {i} to {i + 12}." for i in range(1, 9)]

    def one(prompt):
        messages = [{"role": "user", "content": prompt}]
        return collect(ask(client, messages, temperature=0.9, seed=5, max_tokens=60, stream=True))

    alone = [one(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(one, prompts))
    assert [r["roost"]["token_sha256"] for r in together] == [
        r["roost"]["token_sha256"] for r in alone
    ]


def test_probes_and_the_page_answer(server):
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    for method, path, status in [
        ("GET", "/health", 200),
        ("GET", "/ready", 200),
        ("GET", "/version", 200),
        ("HEAD", "/", 200),
        ("GET", "/", 200),
        ("GET", "/nothing", 404),
        ("DELETE", "/v1/models", 405),
    ]:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status, path
        if answer.getheader("Content-Type") == "application/json":
            json.loads(body)
