"""What of a JSON schema xgrammar follows. The rest it lets go without a word, and so an answer may be none that the schema takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

BY_TYPE: dict[str, set[str]] = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set(),
    "null": set(),
    "array": {"items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties", "unevaluatedProperties", "minProperties", "maxProperties"},
}
"""Keywords that it follows, where a schema says its type."""
TELLING = {
    "object": {"properties", "additionalProperties", "unevaluatedProperties"},
    "array": {"items", "prefixItems", "unevaluatedItems"},
}
"""Keywords that it tells a type from, where a schema says none."""
ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Keywords beside which it looks at no other, the first one first."""
NUMBER = {"multipleOf"}
LET_GO: dict[str, set[str]] = {
    "integer": NUMBER,
    "number": NUMBER,
    "array": {"uniqueItems", "contains", "additionalItems"},
    "object": {"patternProperties", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"},
}
"""Keywords that say something of a type, too."""
EVERY = {"type", *ALONE, "not", "if", "then", "else", "$dynamicRef", "$recursiveRef"}
"""Keywords that say something of all types."""
INSIDE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems")
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
NAMED = ("properties", "$defs", "definitions")
"""Where schemas stand within schemas: one, some in a list, some by name."""
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array", dict: "object"}


def not_followed(schema: Any) -> str:
    """The first thing of a schema, or of one within it, that is let go; nothing where there is none."""
    waiting = [schema]
    while waiting:
        held = waiting.pop()
        if not isinstance(held, dict):
            continue
        if wrong := next(_wrong(held), ""):
            return wrong
        waiting += [held.get(keyword) for keyword in INSIDE]
        waiting += [one for keyword in LISTS if isinstance(held.get(keyword), list) for one in held[keyword]]
        waiting += [one for keyword in NAMED if isinstance(held.get(keyword), dict) for one in held[keyword].values()]
    return ""


def _wrong(schema: dict[str, Any]) -> Iterator[str]:
    """Of one schema, without those in it."""
    alone = next((keyword for keyword in ALONE if keyword in schema), None)
    types = _types(schema)
    followed = {alone} if alone else set().union(*(BY_TYPE.get(name, set()) for name in types))
    if types if alone is None else _all_are(types, schema, alone):
        followed.add("type")
    said = EVERY.union(*(told.get(name, set()) for told in (BY_TYPE, LET_GO) for name in types or BY_TYPE))
    beside = f" beside '{alone}'" if alone else f" of {' or '.join(types)}" if types else " without a type"
    yield from (f"'{keyword}'{beside}" for keyword in sorted(schema.keys() & said - followed))
    if alone == "$ref" and schema[alone] != "#" and not str(schema[alone]).startswith("#/"):
        yield "'$ref' to what is no path in the schema"
    if alone in LISTS and isinstance(schema[alone], list) and (not schema[alone] or (alone == "allOf" and len(schema[alone]) > 1)):
        yield f"'{alone}' of {len(schema[alone])} schemas"
    if alone is None and "string" in types:
        forms = [keyword for keyword in ("pattern", "format") if keyword in schema]
        if len(forms) > 1 or (forms and {"minLength", "maxLength"} & schema.keys()):
            yield "more than one of 'pattern', 'format' and a length"
    if alone is None and (missing := set(schema.get("required", ())) - set(schema.get("properties", ()))):
        yield f"'required' of '{min(missing)}', which 'properties' has not"


def _types(schema: dict[str, Any]) -> list[str]:
    said = schema.get("type")
    if said is None:
        return [name for name, keywords in TELLING.items() if keywords & schema.keys()][:1]
    return said if isinstance(said, list) else [said]


def _all_are(types: list[str], schema: dict[str, Any], keyword: str) -> bool:
    """Whether all values of a `const` or an `enum` are of the types."""
    values = {"const": [schema.get("const")], "enum": schema.get("enum")}.get(keyword)
    kinds = {TYPES.get(type(value), "") for value in values} if isinstance(values, list) else {""}
    return kinds <= {*types, *(["integer"] if "number" in types else [])}


def of_structured(asked: Any) -> list[Any]:
    """Schemas that a request's structured output has, with those within a structural tag."""
    found, waiting = [], []
    if asked.json is not None:
        found.append(json.loads(asked.json) if isinstance(asked.json, str) else asked.json)
    if asked.structural_tag is not None:
        waiting.append(json.loads(asked.structural_tag))
    while waiting:
        held = waiting.pop()
        if isinstance(held, dict):
            found += [held[key] for key in ("json_schema", "schema") if key in held]
            held = list(held.values())
        waiting += held if isinstance(held, list) else []
    return found
