"""Tokens, extents and the map back to the source."""

import pytest

from ktir.assembly.lexer import Cursor, SyntaxFault
from ktir.assembly.source_map import SourceMap


def tokens(text: str) -> list[tuple[str, str]]:
    cursor, found = Cursor(text, 0), []
    while cursor.kind != "end":
        found.append((cursor.kind, cursor.value))
        cursor.advance()
    return found


def test_tokens() -> None:
    assert tokens('%a#1 = d.op "x // y" // end\n^b @f @"g h" !t.u #a 4xf16 -> >= ::') == [
        ("value", "%a#1"), ("punctuation", "="), ("word", "d.op"), ("string", '"x // y"'), ("block", "^b"), ("symbol", "@f"),
        ("symbol", '@"g h"'), ("named", "!t.u"), ("named", "#a"), ("number", "4xf16"), ("punctuation", "->"),
        ("punctuation", ">="), ("punctuation", "::"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "f16",
        "tensor<4x?xf16, #a.b<x = [1, 2], y = (d0) -> (d0 >= 0)>>",
        "!d.t<!d.u<array<i64: 4>>>",
        "!alias",
        "(f16, tensor<4xf16>) -> (f16, () -> f16)",
        "() -> memref<4xf16, affine_map<(d0) -> (d0)>>",
        'memref<4xf16, "a > b">',
    ],
)
def test_type_extent(text: str) -> None:
    cursor = Cursor(f"{text} , rest", 0)
    assert cursor.type_extent() == (0, len(text))
    assert cursor.value == ","


def test_until_comma_leaves_comments_out() -> None:
    cursor = Cursor("[1, // one, two\n 2] // end\n , next", 0)
    begin, end = cursor.until_comma()
    assert cursor.text[begin:end] == "[1, // one, two\n 2]"
    assert cursor.value == ","


def test_unbalanced_brackets() -> None:
    with pytest.raises(SyntaxFault, match="unbalanced brackets") as caught:
        Cursor("<a [b) >", 0).bracketed()
    assert caught.value.offset == 5


@pytest.mark.parametrize(("text", "value"), [("12", 12), ("-3", -3), ("0x10", 16)])
def test_integers(text: str, value: int) -> None:
    assert Cursor(text, 0).integer() == value


def test_source_map() -> None:
    source = "ab\ncd\nef"
    at = SourceMap(source, [("ab\n", 0), ("LONG\nER", 3), ("\nef", 5)])
    assert [at.source_position(1, 2), at.source_position(2, 3), at.source_position(3, 2)] == [(1, 2), (2, 1), (2, 1)]
    assert [at.source_position(4, 1), at.source_position(4, 2), at.source_position(0, 0)] == [(3, 1), (3, 2), (0, 0)]
