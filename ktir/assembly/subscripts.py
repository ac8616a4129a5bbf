"""Subscripts such as `[%i * 2, %j + 4, 0]`: an affine map and the SSA values it is applied to.

Each distinct value becomes one dimension of the map at its first appearance. Values are told apart by their whole name with
the result number, so `%g#0` and `%g#1` stay two values.
"""

import re

from ktir.assembly.lexer import Cursor

_DIMENSION = re.compile(r"\bd(\d+)\b")
_MAP = re.compile(r"affine_map<\([^)]*\)(?:\[[^\]]*\])? -> \((.*)\)>")
_WORDS = ("floordiv", "ceildiv", "mod")


Terms = list[str]
"""The tokens of affine expressions, SSA values by name."""


def read(cursor: Cursor, close: str) -> tuple[list[tuple[str, int]], str]:
    """Reads up to `close`: the values with their offsets in the text, and the map as attribute text."""
    values: dict[str, int] = {}
    terms = read_terms(cursor, close, values)
    return list(values.items()), map_text(terms, list(values))


def read_terms(cursor: Cursor, close: str, values: dict[str, int], *, one: bool = False) -> Terms:
    """Reads up to `close`, or up to a comma too if there can be only `one` expression. New values go to `values` with their offsets."""
    terms: Terms = []
    depth = 0
    while depth or not (cursor.value == close or (one and cursor.value == ",")):
        if cursor.kind == "value":
            values.setdefault(cursor.value, cursor.start)
            terms.append(cursor.value)
        elif cursor.kind == "number" or cursor.value in _WORDS or cursor.value in ("+", "-", "*", ","):
            terms.append(cursor.value)
        elif cursor.value == "(":
            depth += 1
            terms.append("(")
        elif cursor.value == ")" and depth:
            depth -= 1
            terms.append(")")
        elif cursor.value == "symbol":
            cursor.advance()
            cursor.expect("(")
            values.setdefault(cursor.value, cursor.start)
            terms.append(cursor.take("value", "SSA value"))
            if cursor.value != ")":
                raise cursor.fail("expected ')'")
        else:
            raise cursor.fail("expected affine expression of SSA values")
        cursor.advance()
    return terms


def map_text(terms: Terms, names: list[str]) -> str:
    """The affine map over `names` that `terms` describe, as attribute text."""
    position = {name: f"d{i}" for i, name in enumerate(names)}
    dims = ", ".join(position.values())
    return f"affine_map<({dims}) -> ({' '.join(position.get(term, term) for term in terms)})>"


def write(map_text: str, names: list[str]) -> str:
    """The subscripts that read as `map_text` applied to `names`."""
    match = _MAP.fullmatch(map_text)
    if match is None:
        return map_text
    return _DIMENSION.sub(lambda m: names[int(m.group(1))], match.group(1))
