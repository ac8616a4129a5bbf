"""Positions, errors and the collection of what MLIR reports."""

import pytest

from ktir.diagnostics import Diagnostic, KtirError, collect, location_names, location_text, origin_text, remark, remarks, some_of, verify
from ktir.mlir import ir


@pytest.mark.usefixtures("mlir")
def test_location_text() -> None:
    file = ir.Location.file("a.py", 3, 4)
    assert location_text(file) == "a.py:3:4"
    assert location_text(ir.Location.name("x", file)) == "a.py:3:4"
    assert location_text(ir.Location.file("empty.mlir", 0, 0)) == "empty.mlir:1:1"
    assert location_text(ir.Location.fused([ir.Location.unknown(), ir.Location.name("x", file)])) == "a.py:3:4"
    assert location_text(ir.Location.callsite(ir.Location.unknown(), [file])) == "a.py:3:4"
    assert location_text(ir.Location.callsite(ir.Location.file("b.py", 1, 2), [file])) == "b.py:1:2"
    assert location_text(ir.Location.unknown()) == "<unknown>"
    assert location_text(ir.Location.name("x")) == "<unknown>"


@pytest.mark.usefixtures("mlir")
def test_a_name_in_a_name_is_a_module() -> None:
    file = ir.Location.file("a.py", 3, 4)
    inside = ir.Location.name("relu", ir.Location.name("layers.0"))
    several = ir.Location.fused([ir.Location.name("mm"), inside, ir.Location.name("exp", ir.Location.name("layers.1"))])
    assert [origin_text(each) for each in (inside, several)] == ["module 'layers.0'"] * 2
    assert location_names(several) == ["mm", "relu", "exp"]
    assert location_text(inside) == origin_text(ir.Location.name("mm")) == "<unknown>"
    assert origin_text(ir.Location.fused([inside, ir.Location.name("x", file)])) == "a.py:3:4"


def test_error_text() -> None:
    note = Diagnostic("note", "defined here", "a.py:1:1")
    assert str(KtirError("bad thing", "a.py:3:4", (note,))) == "a.py:3:4: error: bad thing\na.py:1:1: note: defined here"
    assert str(KtirError("bad thing")) == "error: bad thing"
    said = [Diagnostic("warning", "hm"), Diagnostic("error", "first", "a:1:1"), Diagnostic("error", "second", "a:2:1")]
    error = KtirError.of(said, "unused")
    assert (error.message, error.location) == ("first", "a:1:1")
    assert str(error) == "a:1:1: error: first\na:2:1: error: second"
    assert str(KtirError.of([], "it failed")) == "error: it failed"


@pytest.mark.usefixtures("mlir")
def test_collect_and_verify(mlir: ir.Context, capfd: pytest.CaptureFixture[str]) -> None:
    module = ir.Module.parse("func.func @f() { return }")
    function = module.body.operations[0]
    verify(module)
    with collect(mlir) as said:
        function.location.emit_error("one")
    assert [(d.severity, d.message, d.location) for d in said] == [("error", "one", "-:1:1")]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([ir.IndexType.get()], []))
    with pytest.raises(KtirError, match="entry block must have 1 arguments"):
        verify(module)
    assert capfd.readouterr() == ("", "")


def test_remarks_go_to_the_innermost_listener_or_nowhere() -> None:
    remark("passed", "p", "lost")
    with remarks() as outer:
        remark("passed", "p", "one")
        with remarks() as inner:
            remark("missed", "p", "two")
    assert ([r.message for r in outer], [r.message for r in inner]) == (["one"], ["two"])


def test_few_of_many_names() -> None:
    assert some_of("abc") == "a, b, c"
    assert some_of("abcde") == "a, b, c and 2 more"
    assert some_of("") == ""
