"""Replies bound to a form, by the real model: what ends is valid, what is cut is a beginning of it."""

import json
import re

import jsonschema
import openai
import pytest

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3, "uniqueItems": True},
        "born": {"type": "string", "format": "date"},
    },
    "required": ["name", "age", "tags", "born"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def ask(client, thinking=False, question="Describe a person.", **fields):
    extra = {"enable_thinking": thinking, **fields.pop("extra", {})}
    return client.chat.completions.create(
        model="x", messages=[{"role": "user", "content": question}], extra_body=extra, **fields)


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


@pytest.mark.parametrize("temperature, seed", [(0, 1), (1, 2), (1, 3), (2, 4), (5, 5)])
def test_a_reply_has_the_form_of_its_schema(client, temperature, seed):
    reply = ask(client, temperature=temperature, seed=seed, max_tokens=400, response_format=schema_format(PERSON))
    assert reply.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(reply.choices[0].message.content), PERSON,
                        format_checker=jsonschema.FormatChecker())


def test_a_stream_says_the_same_as_the_whole(client):
    fields = {"temperature": 1, "seed": 9, "max_tokens": 400, "response_format": schema_format(PERSON)}
    whole = ask(client, **fields).choices[0].message.content
    deltas = [chunk.choices[0].delta.content or "" for chunk in ask(client, stream=True, **fields) if chunk.choices]
    assert "".join(deltas) == whole


def test_reasoning_is_free_and_the_form_begins_behind_it(client):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
              "additionalProperties": False}
    reply = ask(client, thinking=True, question="What is 2 + 3?", temperature=0, max_tokens=600,
                response_format=schema_format(schema))
    if reply.choices[0].finish_reason == "length":  # a small model may think on: then nothing is content
        assert reply.choices[0].message.content == ""
    else:
        jsonschema.validate(json.loads(reply.choices[0].message.content), schema)
    assert reply.choices[0].message.model_extra["reasoning_content"]


@pytest.mark.parametrize("wanted, pattern", [
    ({"choice": ["yes", "no", "perhaps"]}, "yes|no|perhaps"),
    ({"regex": "[A-Z][a-z]{2,5}-\\d{3}"}, "[A-Z][a-z]{2,5}-[0-9]{3}"),
    ({"grammar": 'root ::= "(" root ")" | [0-9]{1,2}'}, r"\(*[0-9]{1,2}\)*"),
])
def test_other_forms_bind_the_whole_reply(client, wanted, pattern):
    for seed in (1, 2, 3):
        reply = ask(client, temperature=2, seed=seed, max_tokens=300, extra={"structured_outputs": wanted})
        if reply.choices[0].finish_reason == "stop":
            assert re.fullmatch(pattern, reply.choices[0].message.content)
        else:
            assert re.fullmatch(r"\(+[0-9]*\)*", reply.choices[0].message.content)


def test_a_json_object_is_one_and_a_cut_one_is_its_beginning(client):
    whole = ask(client, temperature=1, seed=5, max_tokens=300, response_format={"type": "json_object"})
    if whole.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(whole.choices[0].message.content), dict)
    cut = ask(client, temperature=1, seed=5, max_tokens=4, response_format={"type": "json_object"})
    assert whole.choices[0].message.content.startswith(cut.choices[0].message.content)


def test_an_end_token_that_is_ignored_still_ends_a_complete_form(client):
    reply = ask(client, temperature=0, max_tokens=50, extra={"ignore_eos": True, "structured_outputs": {"choice": ["a"]}})
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("a", "stop")


@pytest.mark.parametrize("fields, code, param", [
    ({"response_format": schema_format({"not": {}})}, "schema.unsupported_keyword", "response_format"),
    ({"response_format": schema_format(False)}, "schema.unsatisfiable", "response_format"),
    ({"response_format": schema_format({"type": "x"})}, "schema.invalid", "response_format"),
    ({"extra": {"structured_outputs": {"regex": "(?=a)"}}}, "regex.unsupported", "structured_outputs.regex"),
    ({"extra": {"structured_outputs": {"grammar": "start: x"}}}, "grammar.invalid", "structured_outputs.grammar"),
    ({"extra": {"structured_outputs": {"regex": "a{10001}"}}}, "grammar.too_large", "structured_outputs.regex"),
    ({"response_format": {"type": "json_object"}, "extra": {"structured_outputs": {"json_object": True}}},
     "request.field_conflict", "response_format"),
])
def test_what_cannot_be_enforced_is_refused_before_any_work(client, fields, code, param):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, stream=True, **fields)
    assert refused.value.body["refusal"] == code
    assert refused.value.param == param
