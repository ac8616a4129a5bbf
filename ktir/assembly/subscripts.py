"""Subscripts such as `[%i * 2, %j + 4, 0]`: an affine map and the SSA values it is applied to.

Each distinct value becomes one dimension of the map at its first appearance. Values are told apart by their whole name with
the result number, so `%g#0` and `%g#1` stay two values.
"""

import re

from ktir.assembly.lexer import Cursor

_DIMENSION = re.compile(r"\bd(\d+)\b")
_MAP = re.compile(r"affine_map<\([^)]*\)(?:\[[^\]]*\])? -> \((.*)\)>")
_WORDS = ("floordiv", "ceildiv", "mod")


def read(cursor: Cursor, close: str) -> tuple[list[tuple[str, int]], str]:
    """Reads up to `close`: the values with their offsets in the text, and the map as attribute text."""
    values: list[tuple[str, int]] = []
    names: list[str] = []
    parts: list[str] = []
    depth = 0
    while depth or cursor.value != close:
        if cursor.kind == "value":
            if cursor.value not in names:
                names.append(cursor.value)
                values.append((cursor.value, cursor.start))
            parts.append(f"d{names.index(cursor.value)}")
        elif cursor.kind == "number" or cursor.value in _WORDS or cursor.value in ("+", "-", "*", ","):
            parts.append(cursor.value)
        elif cursor.value == "(":
            depth += 1
            parts.append("(")
        elif cursor.value == ")" and depth:
            depth -= 1
            parts.append(")")
        else:
            raise cursor.fail("expected affine expression of SSA values")
        cursor.advance()
    return values, f"affine_map<({', '.join(f'd{i}' for i in range(len(names)))}) -> ({' '.join(parts)})>"


def write(map_text: str, names: list[str]) -> str:
    """The subscripts that read as `map_text` applied to `names`."""
    match = _MAP.fullmatch(map_text)
    if match is None:
        return map_text
    return _DIMENSION.sub(lambda m: names[int(m.group(1))], match.group(1))
