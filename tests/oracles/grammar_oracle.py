#!/usr/bin/env python3
"""Compares the grammars of src/grammar/ with jsonschema and with Python's re.

    grammar_oracle.py build/release/grammar_tool [--cases N] [--seed S]

Random schemas: every text that the masks lead to must validate; every random valid instance, printed in
the order that the schema declares, must be accepted; a spoiled instance may be accepted only if it
validates. Random expressions: the same against re.fullmatch. A refusal is counted, and is a failure
unless the schema holds what docs/SERVER.md refuses or has no value.
"""

import argparse
import decimal
import json
import random
import re
import subprocess
import sys

import jsonschema

decimal.getcontext().prec = 500
NAMES = ["a", "b", "name", "na", "x-y", "é", "q\"uote", "tab\t"]
WORDS = ["", "a", "ab", "abc", "b", "12", "é日", "x\ny", "\"", "\\", "a b", "😀", "zz/z"]
PATTERNS = ["^a", "b$", "^[a-c]{1,3}$", "\\d", "a|é", "^(ab?)*$", "[^a]", "^$|x"]


def load(text):
    return json.loads(text, parse_float=decimal.Decimal)


class Printer(json.JSONEncoder):
    def default(self, o):
        return float(o)


def dump(value, gaps):
    """JSON text; Decimals keep their digits."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        comma, colon = (", ", ": ") if gaps else (",", ":")
        return "{" + comma.join(json.dumps(k, ensure_ascii=False) + colon + dump(v, gaps)
                                for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + (", " if gaps else ",").join(dump(v, gaps) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


class Maker:
    """Random schemas, and random instances that are often valid."""

    def __init__(self, rng):
        self.rng = rng

    def scalar(self):
        rng = self.rng
        return rng.choice([None, True, False, rng.randint(-20, 20), decimal.Decimal(rng.randint(-99, 99)) / 10,
                           rng.choice(WORDS)])

    def schema(self, depth):
        rng = self.rng
        kind = rng.random()
        if kind < 0.05:
            return True
        if kind < 0.13:
            return {"enum": [self.scalar() for _ in range(rng.randint(1, 4))]}
        if kind < 0.16:
            return {"const": rng.choice([self.scalar(), [1, {"k": "v"}], {"a": [], "b": None}])}
        if depth > 0 and kind < 0.24:
            return {"anyOf": [self.schema(depth - 1) for _ in range(rng.randint(1, 3))]}
        if depth > 0 and kind < 0.29:
            return {"allOf": [self.schema(depth - 1) for _ in range(rng.randint(1, 2))]}
        if kind < 0.33:
            return {"$ref": "#/$defs/" + rng.choice(["one", "two"])}
        if kind < 0.36:
            return {"type": rng.sample(["null", "boolean", "integer", "string"], 2)}
        types = ["integer", "number", "string", "boolean", "null"] + (["array", "object"] * 3 if depth > 0 else [])
        return getattr(self, rng.choice(types))(depth)

    def boolean(self, depth):
        return {"type": "boolean"}

    def null(self, depth):
        return {"type": "null"}

    def integer(self, depth):
        return self.number_limits({"type": "integer"}, 1)

    def number(self, depth):
        return self.number_limits({"type": "number"}, self.rng.choice([1, 10, 100]))

    def number_limits(self, schema, scale):
        rng = self.rng
        low = rng.randint(-30 * scale, 30 * scale)
        value = lambda n: n if scale == 1 else decimal.Decimal(n) / scale
        if rng.random() < 0.5:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = value(low)
        if rng.random() < 0.5:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = value(low + rng.randint(0, 40 * scale))
        if rng.random() < 0.25:
            schema["multipleOf"] = rng.choice([1, 2, 3, 7, decimal.Decimal("0.5"), decimal.Decimal("0.01")])
        return schema

    def string(self, depth):
        rng = self.rng
        schema = {"type": "string"}
        if rng.random() < 0.4:
            schema["minLength"] = rng.randint(0, 3)
        if rng.random() < 0.4:
            schema["maxLength"] = rng.randint(1, 5)
        if rng.random() < 0.35:
            schema["pattern"] = rng.choice(PATTERNS)
        return schema

    def array(self, depth):
        rng = self.rng
        schema = {"type": "array"}
        if rng.random() < 0.8:
            schema["items"] = self.schema(depth - 1)
        if rng.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            schema["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            schema["maxItems"] = rng.randint(1, 4)
        if rng.random() < 0.1:
            schema["items"] = {"enum": [1, "x", None, 2]}
            schema.pop("prefixItems", None)
            schema["uniqueItems"] = True
        return schema

    def object(self, depth):
        rng = self.rng
        names = rng.sample(NAMES, rng.randint(0, 4))
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        if names and rng.random() < 0.7:
            schema["required"] = rng.sample(names, rng.randint(0, len(names)))
        kind = rng.random()
        if kind < 0.5:
            schema["additionalProperties"] = False
        elif kind < 0.7:
            schema["additionalProperties"] = self.schema(depth - 1)
        if rng.random() < 0.15:
            schema["patternProperties"] = {rng.choice(["^n", "y$", "[ab]"]): self.schema(depth - 1)}
        if rng.random() < 0.15:
            schema["maxProperties"] = rng.randint(1, 4)
        if rng.random() < 0.15:
            schema["minProperties"] = rng.randint(0, 2)
        return schema

    def instance(self, schema, root, depth=0):
        """A value that the schema often lets."""
        rng = self.rng
        if schema is True or depth > 8:
            return self.scalar()
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        if "anyOf" in schema:
            return self.instance(rng.choice(schema["anyOf"]), root, depth + 1)
        if "allOf" in schema:
            return self.instance(rng.choice(schema["allOf"]), root, depth + 1)
        if "$ref" in schema:
            return self.instance(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, depth + 1)
        if "type" not in schema:
            return self.scalar()
        types = schema["type"]
        kind = rng.choice(types) if isinstance(types, list) else types
        if kind == "null":
            return None
        if kind == "boolean":
            return rng.random() < 0.5
        if kind in ("integer", "number"):
            bounds = [v for k, v in schema.items() if k.endswith("imum")] or [0]
            value = decimal.Decimal(rng.choice(bounds)) + rng.randint(-3, 12)
            if kind == "number" and rng.random() < 0.5:
                value += decimal.Decimal(rng.choice(["0.5", "0.01", "-0.25"]))
            return int(value) if value == value.to_integral_value() else value
        if kind == "string":
            return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 2)))
        if kind == "array":
            first = schema.get("prefixItems", [])
            low = schema.get("minItems", 0)
            n = rng.randint(low, max(low, schema.get("maxItems", 3)))
            return [self.instance(first[i] if i < len(first) else schema.get("items", True), root, depth + 1)
                    for i in range(n)]
        out = {}
        for name, value in schema["properties"].items():
            if name in schema.get("required", []) or rng.random() < 0.5:
                out[name] = self.instance(value, root, depth + 1)
        if schema.get("additionalProperties") is not False and rng.random() < 0.4:
            out["other"] = self.instance(schema.get("additionalProperties", True), root, depth + 1)
        return out


def is_in_order(value, schema, root):
    """Whether every object has declared keys first, in declared order. Looks only at plain places."""
    if not isinstance(schema, dict):
        return True
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        return all(is_in_order(v, first[i] if i < len(first) else schema.get("items", True), root)
                   for i, v in enumerate(value))
    if not isinstance(value, dict) or "properties" not in schema:
        return True
    order = list(schema["properties"])
    places = [order.index(k) if k in order else len(order) for k in value]
    return places == sorted(places) and all(
        is_in_order(v, schema["properties"].get(k, True), root) for k, v in value.items())


def has_merged_places(schema):
    """allOf, $ref and anyOf put several orders into one place: then order is not compared."""
    return any(key in json.dumps(schema, cls=Printer) for key in ('"allOf"', '"$ref"', '"anyOf"', '"const"'))


def has_foreign_escape(text):
    return re.search(r"\\u(?!00[01][0-9a-f])|\\/", text) is not None


class Tool:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Counts:
    def __init__(self):
        self.passed, self.failed, self.refused, self.accepted, self.walks = 0, 0, 0, 0, 0

    def note(self, is_right, *what):
        self.passed += is_right
        self.failed += not is_right
        if not is_right and self.failed <= 10:
            print("FAILED", *what)


ALLOWED_REFUSALS = ("schema.unsatisfiable", "schema.unsupported_keyword")


def check_schema(tool, rng, counts):
    maker = Maker(rng)
    root = maker.schema(3)
    if root is True:
        root = {}
    root = {**root, "$defs": {"one": maker.schema(1), "two": maker.schema(0)}}
    validator = jsonschema.Draft202012Validator(root)
    texts, expected = [], []
    for _ in range(12):
        value = maker.instance(root, root)
        text = dump(value, rng.random() < 0.5)
        if rng.random() < 0.4:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(["", "1", "\"", ",", "}", "a", " ", "-", "\n"]) + text[at + rng.randint(0, 1):]
        try:
            value = load(text)
            is_valid = validator.is_valid(value)
        except (ValueError, RecursionError):
            value, is_valid = None, None
        texts.append(text)
        expected.append((value, is_valid))
    question = f'{{"schema": {dump(root, True)}, "texts": {json.dumps(texts)}, "n_walks": 6, "seed": {rng.randrange(1 << 60)}}}'
    answer = tool.ask(question)
    if "refused" in answer:
        counts.refused += 1
        is_expected = (answer["refused"].startswith(ALLOWED_REFUSALS)
                       or "defined by itself" in answer["refused"])
        is_empty = answer["refused"].startswith("schema.unsatisfiable")
        counts.note(is_expected and not (is_empty and any(valid for _, valid in expected)),
                    answer["refused"], dump(root, True))
        return
    for text, (value, is_valid), is_accepted in zip(texts, expected, answer["accepts"]):
        if is_accepted:
            counts.accepted += 1
            counts.note(is_valid is True, "accepts", repr(text), dump(root, True))
        elif is_valid and not has_merged_places(root) and is_in_order(value, root, root) and plain_space(text):
            counts.note(False, "refuses", repr(text), dump(root, True))
        else:
            counts.passed += 1
    for text in answer["walks"]:
        counts.walks += 1
        try:
            is_valid = validator.is_valid(load(text))
        except (ValueError, RecursionError):
            is_valid = False
        counts.note(is_valid, "walks to", repr(text), dump(root, True))


def plain_space(text):
    """Spaces as printers write them, numbers without exponent, no zero with a minus."""
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return not re.search(r"[\t\r]|\n[^ \S]*\n|^\s|\s$| \n|\d[eE]|-0(?![.\d])|\d{18}|\.\d*0(?!\d)", outside)


ATOMS = ["a", "b", "é", "[a-c]", "[^a]", "\\d", "\\w", ".", "\\s", "日", "x", "[é日]", "\\."]


def random_pattern(rng, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice(ATOMS)
    if kind < 0.6:
        return "".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.75:
        return "(?:" + "|".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    return "(?:" + random_pattern(rng, depth - 1) + ")" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}"])


def check_regex(tool, rng, counts):
    pattern = random_pattern(rng, 3)
    texts = ["".join(rng.choice("abcxé日1 .\n_") for _ in range(rng.randint(0, 6))) for _ in range(15)]
    answer = tool.ask(json.dumps({"regex": pattern, "texts": texts, "n_walks": 5, "seed": rng.randrange(1 << 60)}))
    counts.note("refused" not in answer, pattern, answer)
    if "refused" in answer:
        return
    # A dot leaves out all line ends here, as in the standard of JSON schema patterns.
    python = re.compile(pattern.replace(".", "[^\\n\\r\\u2028\\u2029]").replace("\\[^\\n\\r\\u2028\\u2029]", "\\."), re.ASCII)
    for text, is_accepted in zip(texts, answer["accepts"]):
        counts.accepted += is_accepted
        counts.note(is_accepted == (python.fullmatch(text) is not None), pattern, repr(text), is_accepted)
    for text in answer["walks"]:
        counts.walks += 1
        counts.note(python.fullmatch(text) is not None, pattern, "walks to", repr(text))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--cases", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tool, counts = Tool(arguments.tool), Counts()
    rng = random.Random(arguments.seed)
    for _ in range(arguments.cases):
        check_schema(tool, rng, counts)
        check_regex(tool, rng, counts)
    print(f"{counts.refused} schemas refused, {counts.accepted} texts accepted, {counts.walks} walks")
    # An oracle that sees only refusals sees nothing.
    enough = counts.accepted > arguments.cases and counts.refused < arguments.cases / 3
    print(f"{counts.passed} passed, {counts.failed + (not enough)} failed")
    return counts.failed > 0 or not enough


if __name__ == "__main__":
    sys.exit(main())
