"""The format language, on ops made for the purpose."""

import pytest

from ktir.assembly.elements import Writing
from ktir.assembly.formats import Group, OpSyntax
from ktir.assembly.lexer import Cursor, SyntaxFault

A, B = Group("a"), Group("b", "variadic", "index")


def read(syntax: OpSyntax, text: str) -> str:
    """Generic form of an op whose text after the name is `text`."""
    pieces, _ = syntax.read(Cursor(text, 0), lambda start, end, prefix="": [(prefix + text[start:end], start)])
    return "".join(piece for piece, _ in pieces)


def test_literals_operands_and_types() -> None:
    syntax = OpSyntax("d.op", "$a `to` $b attr-dict `:` type($a)", (A, B))
    assert read(syntax, "%x to %y, %z {k = 1} : f16") == '"d.op"(%x, %y, %z) {k = 1} : (f16, index, index) -> ()'
    assert read(syntax, "%x to : f16") == '"d.op"(%x) {} : (f16) -> ()'
    op = Writing({"a": ["%0"], "b": ["%1", "%2"]}, {"a": ["f16"]}, {"k": "1", "u": None}, {}, {})
    assert syntax.write(op) == " %0 to %1, %2 {k = 1, u} : f16"


def test_types_of_one_variable_are_given_once() -> None:
    syntax = OpSyntax("d.op", "$a `,` $c `:` type($r)", (Group("a", like="T"), Group("c", like="T")), (Group("r", like="T"),))
    assert read(syntax, "%x, %y : f16") == '"d.op"(%x, %y) {} : (f16, f16) -> (f16)'


def test_optional_groups_and_bare_attributes() -> None:
    syntax = OpSyntax("d.op", "symbol($name) (`at` integer($n) (`of` integers($l))?)? keyword($k) attr-dict")
    assert read(syntax, "@f at -3 of [1, 2] fast") == ('"d.op"() {name = "f", n = -3 : i64, l = array<i64: 1, 2>, k = "fast"} : () -> ()')
    assert read(syntax, "@f fast {x}") == '"d.op"() {name = "f", k = "fast", x} : () -> ()'
    full: dict[str, str | None] = {"k": '"fast"', "l": "array<i64: 1, 2>", "n": "3 : i64", "name": '"f g"'}
    assert syntax.write(Writing({}, {}, full, {}, {})) == ' @"f g" at 3 of [1, 2] fast'
    assert syntax.write(Writing({}, {}, {"k": '"fast"', "name": '"f"'}, {}, {})) == " @f fast"


def test_attributes_in_any_form() -> None:
    syntax = OpSyntax("d.op", "$x `,` $y `,` $z attr-dict")
    assert read(syntax, '3 : i8, "a, b", [1, {k = 2}]') == '"d.op"() {x = 3 : i8, y = "a, b", z = [1, {k = 2}]} : () -> ()'
    assert read(syntax, "@a::@b, #q<w = (1, 2)>, dense<0> : tensor<4xf16>") == (
        '"d.op"() {x = @a::@b, y = #q<w = (1, 2)>, z = dense<0> : tensor<4xf16>} : () -> ()'
    )


def test_regions() -> None:
    syntax = OpSyntax("d.op", "$a region($body) attr-dict", (Group("a", type_text="index"),), regions=("body",))
    assert read(syntax, "%x { ^b: a.b } {k}") == '"d.op"(%x) ({ ^b: a.b }) {k} : (index) -> ()'
    op = Writing({"a": ["%0"]}, {"a": ["index"]}, {"k": None}, {"body": "{\n}"}, {})
    assert syntax.write(op) == " %0 {\n} {k}"


def test_segment_sizes() -> None:
    groups = (Group("a", "variadic", "index"), Group("b", "optional", "index"))
    syntax = OpSyntax("d.op", "$a (`if` $b)? attr-dict", groups, segments=frozenset({"operandSegmentSizes"}))
    assert "operandSegmentSizes = array<i32: 2, 1>" in read(syntax, "%x, %y if %z")
    assert "operandSegmentSizes = array<i32: 0, 0>" in read(syntax, "")


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("%x %y", "expected 'to'", 3),
        ("%x to %y {a", "expected '}'", 11),
        ("%x to %y, : f16", "expected SSA operand", 10),
        ("%x to %y {a = 1, a = 2} : f16", "key 'a' is already set by the op's own syntax or given twice", 17),
        ("%x to %y : )", "expected type", 11),
        ("%x to %y : #f16", "expected type", 11),
    ],
)
def test_faults_are_placed(text: str, message: str, at: int) -> None:
    with pytest.raises(SyntaxFault) as caught:
        read(OpSyntax("d.op", "$a `to` $b attr-dict `:` type($a)", (A, B)), text)
    assert (caught.value.message, caught.value.offset) == (message, at)


@pytest.mark.parametrize("assembly", ["$a ` ", "nonsense($a)", "type($nobody)", "* "])
def test_bad_formats_are_refused(assembly: str) -> None:
    with pytest.raises(ValueError, match=r"format of 'd\.op'"):
        _ = OpSyntax("d.op", assembly, (A,)).elements
