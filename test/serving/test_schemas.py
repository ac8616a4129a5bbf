# pyright: reportMissingImports=false
"""Schemas that xgrammar lets go: of those that are taken, it takes no instance that jsonschema does not."""

import json
import random
from typing import Any

import jsonschema
import pytest
import xgrammar

from ktir.vllm.schemas import not_followed

END = 95
COMPILER = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([*map(chr, range(32, 127)), "</s>"], stop_token_ids=[END]))
LET_GO: list[tuple[dict[str, Any], Any]] = [
    ({"not": {"type": "string"}}, "a"),
    ({"minimum": 3}, 1),
    ({"type": "string", "pattern": "^a*$", "maxLength": 2}, "aaaa"),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}, {"a": 1}),
    ({"type": "object", "required": ["a"], "additionalProperties": True}, {"b": 1}),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 1),
    ({"type": "integer", "anyOf": [{"minimum": 3}, {"maximum": 1}]}, 2),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}, "minimum": 3}, 1),
    ({"type": "string", "enum": [1, "a"]}, 1),
    ({"type": "array", "items": {"anyOf": [{"type": "string"}, {"maximum": 1}]}}, [2]),
]
FOLLOWED: list[dict[str, Any]] = [
    {"title": "a thing", "type": "object", "properties": {"a": {"type": "integer", "description": "how many"}}, "required": ["a"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
    {"type": "string", "enum": ["a", "b"]},
    {"allOf": [{"type": "integer", "minimum": 3}], "description": "as pydantic has a field of another model"},
    {"type": ["integer", "null"], "minimum": 3, "x-own": 4},
]


def takes(schema: Any, instance: Any) -> bool:
    matcher = xgrammar.GrammarMatcher(COMPILER.compile_json_schema(json.dumps(schema)))
    return matcher.accept_string(json.dumps(instance)) and matcher.accept_token(END)


@pytest.mark.parametrize(("schema", "instance"), LET_GO, ids=lambda x: json.dumps(x)[:60])
def test_what_is_let_go_is_told(schema: Any, instance: Any) -> None:
    assert takes(schema, instance)
    assert not jsonschema.Draft202012Validator(schema).is_valid(instance)
    assert not_followed(schema)


@pytest.mark.parametrize("schema", FOLLOWED, ids=lambda x: json.dumps(x)[:60])
def test_what_is_followed_is_taken(schema: Any) -> None:
    assert not_followed(schema) == ""


def drawn(draw: random.Random, depth: int = 2) -> Any:
    """A schema of keywords that may fit together or not."""

    def number() -> int:
        return draw.randint(0, 4)

    def inner() -> Any:
        return drawn(draw, depth - 1) if depth else {"type": "integer"}

    found: dict[str, Any] = {}
    if draw.random() < 0.8:
        kinds = ["string", "integer", "number", "boolean", "null", "array", "object"]
        found["type"] = draw.choice(kinds) if draw.random() < 0.8 else draw.sample(kinds, 2)
    makers = {
        **dict.fromkeys(
            ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "exclusiveMinimum"), number
        ),
        "multipleOf": lambda: 2,
        "uniqueItems": lambda: True,
        "pattern": lambda: "^a+$",
        "const": lambda: draw.choice([1, "a", None]),
        "enum": lambda: [1, "a", "bb"],
        "items": inner,
        "prefixItems": lambda: [inner()],
        "contains": inner,
        "not": inner,
        "anyOf": lambda: [inner(), inner()],
        "allOf": lambda: [inner() for _ in range(draw.randint(1, 2))],
        "properties": lambda: {name: inner() for name in draw.sample("ab", draw.randint(1, 2))},
        "required": lambda: draw.sample("ab", draw.randint(1, 2)),
        "additionalProperties": lambda: draw.choice([True, False, inner()]),
        "dependentRequired": lambda: {"a": ["b"]},
        "title": lambda: "a",
    }
    for keyword in draw.sample(sorted(makers), draw.choice([0, 1, 1, 2, 2, 3])):
        found[keyword] = makers[keyword]()
    return found


def instance(draw: random.Random, depth: int = 2) -> Any:
    plain: list[Any] = [0, 1, 2, 3, 5, -1, 1.5, "", "a", "aa", "bb", "aaaaaa", True, None]
    kind = draw.random() if depth else 0.0
    if kind > 0.75:
        return {name: instance(draw, depth - 1) for name in sorted(draw.sample("abc", draw.randint(0, 3)))}
    return [instance(draw, depth - 1) for _ in range(draw.randint(0, 3))] if kind > 0.5 else draw.choice(plain)


def test_no_instance_is_taken_that_the_schema_does_not_take() -> None:
    draw, taken = random.Random(0), 0
    for _ in range(3000):
        schema = drawn(draw)
        if not_followed(schema):
            continue
        judge = jsonschema.Draft202012Validator(schema)
        try:
            COMPILER.compile_json_schema(json.dumps(schema))
        except RuntimeError:
            continue  # refused, as bounds without a number between them
        for one in [instance(draw) for _ in range(20)]:
            if takes(schema, one):
                taken += 1
                assert judge.is_valid(one), (schema, one)
    assert taken > 1000
