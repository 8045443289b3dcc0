"""Structured output in every dialect: valid by another program's judgement, and the same with drafts."""

import concurrent.futures
import json

import jsonschema
import pytest

from dialects import CUT, ENDED, schema_fields

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 8},
                   "age": {"type": "integer", "minimum": 7, "maximum": 13},
                   "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 2}},
    "required": ["name", "age", "tags"], "additionalProperties": False,
}
SCHEMAS = [
    {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 9, "multipleOf": 0.1},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 10, "maxItems": 20},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "object", "properties": {f"k{i}": {"const": i} for i in range(60)}, "additionalProperties": False},
    {"anyOf": [{"const": "abc"}, {"const": "abd"}, {"type": "null"}]},
    {"$defs": {"a/b": {"enum": [1, 2]}}, "$ref": "#/$defs/a~1b"},
    {"type": "string", "format": "date"},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 2},
]
REFUSED = ["not", "if", "contains", "dependentRequired", "unevaluatedItems", "$dynamicRef", "nullable", "wrong"]


def budget(talk):
    return {"thinking_budget": 10} if talk.cell.thinks else {}


@pytest.mark.cells()
def test_S44_keywords_that_cannot_be_enforced_are_refused(talk):
    for keyword in REFUSED:
        reply = talk.once(["Hi"], **schema_fields(talk.dialect, {"properties": {"a": {keyword: {}}}}))
        assert (reply.status, reply.refusal) == (400, "schema.unsupported_keyword")
        assert f"#/properties/a/{keyword}" in reply.body
    reply = talk.once(["Hi"], **schema_fields(talk.dialect, {"pattern": "(?<=a)b"}))
    assert (reply.status, reply.refusal) == (400, "regex.unsupported")


@pytest.mark.cells()
def test_S45_a_schema_binds_behind_reasoning(talk):
    reply = talk.ask(["Describe a person."], temperature=1, max_tokens=200, **budget(talk),
                     **schema_fields(talk.dialect, PERSON))
    assert reply.finish == ENDED[talk.dialect], reply
    assert reply.roost["finish_detail"] == "grammar_end"
    jsonschema.validate(json.loads(reply.content), PERSON)
    assert bool(reply.reasoning) == (talk.cell.thinks and talk.dialect != "completions")
    if talk.cell.thinks and talk.dialect != "completions":
        cut = talk.ask(["Describe a person."], max_tokens=4, **schema_fields(talk.dialect, PERSON))
        assert (cut.content, cut.finish) == ("", CUT[talk.dialect])


@pytest.mark.cells()
def test_S46_every_reply_of_many_is_valid_and_as_without_drafts(talk):
    fields = {**budget(talk), **schema_fields(talk.dialect, PERSON), "temperature": 1, "max_tokens": 200}
    ask = lambda seed: talk.once(["Answer in a ```json fence."], seed=seed, **fields)  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(ask, range(8)))
    for seed, reply in enumerate(replies):
        jsonschema.validate(json.loads(reply.content), PERSON)
        if seed % 4 == 0:
            plain = talk.once(["Answer in a ```json fence."], seed=seed, **{**fields, "draft": False})
            assert plain.told() == reply.told()


@pytest.mark.cells()
def test_S48_outputs_pass_an_independent_validator(talk):
    for seed, schema in enumerate(SCHEMAS):
        reply = talk.once(["Go."], temperature=1, seed=seed, max_tokens=600, **budget(talk),
                          **schema_fields(talk.dialect, schema))
        assert reply.finish == ENDED[talk.dialect], (schema, reply)
        jsonschema.validate(json.loads(reply.content), schema, format_checker=jsonschema.FormatChecker())
