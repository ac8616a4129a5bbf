"""Functions, names and places, also in text that is half typed."""

from __future__ import annotations

import pytest

from ktir.editor.check import check
from ktir.editor.completion import complete
from ktir.editor.docs import ops, parameters
from ktir.editor.hover import hover
from ktir.editor.text import Index

TEXT = """// %a in a comment, func.func @none
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @first(%a: index, %b: index) attributes {grid = [4]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %n = scf.for %i = %c0 to %c4 step %c0 iter_args(%acc = %a) -> (index) {
    %t = arith.addi %acc, %i : index
    scf.yield %t : index
  }
  %m:2 = func.call @second(%n) : (index) -> (index, index)
  %v = ktdp.construct_memory_view %a, sizes: [4], strides: [1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
func.func private @second(%a: index) -> (index, index) {
  %t = arith.muli %a, %a : index
  return %t, %t : index, index
}
"""


def place(text: str, mark: str, nth: int = 0) -> int:
    """One character into the n-th `mark`."""
    at = -1
    for _ in range(nth + 1):
        at = text.index(mark, at + 1)
    return at + 1


def defined(text: str, offset: int) -> tuple[int, str] | None:
    index = Index(text)
    found = index.definition(offset)
    return (index.position(found[0])[0], text[found[0] : found[1]]) if found else None


def test_functions_and_aliases() -> None:
    index = Index(TEXT)
    assert [f.name for f in index.functions] == ["first", "second"]
    assert [TEXT[f.body] for f in index.functions] == ["{", "{"]
    assert TEXT[index.functions[0].start : index.functions[0].end].endswith("return\n}")
    assert list(index.aliases) == ["#box"]


@pytest.mark.parametrize(
    ("mark", "nth", "line", "name"),
    [
        ("%acc,", 0, 5, "%acc"),
        ("%i :", 0, 5, "%i"),
        ("%t :", 0, 6, "%t"),
        ("%n)", 0, 5, "%n"),
        ("%a,", 1, 14, "%a"),  # the argument of the second function
        ("%a,", 0, 2, "%a"),
        ("#box,", 0, 1, "#box"),
        ("@second(%n", 0, 14, "@second"),
    ],
)
def test_definitions(mark: str, nth: int, line: int, name: str) -> None:
    assert defined(TEXT, place(TEXT, mark, nth)) == (line, name)


def test_a_function_without_its_end_does_not_swallow_the_next_one() -> None:
    text = TEXT.replace("  return\n}\nfunc", "  return\nfunc", 1)
    assert [f.name for f in Index(text).functions] == ["first", "second"]
    assert defined(text, text.rindex("%t,")) == (14, "%t")


def test_hover_tells_types_docs_and_price() -> None:
    index, analysis = Index(TEXT), check(TEXT)
    assert not analysis.findings

    def at(mark: str, nth: int = 0) -> str:
        found = hover(index, place(TEXT, mark, nth), analysis)
        return found.markdown if found else ""

    assert "%acc : index" in at("%acc,")
    assert "%v : memref<4xf16>" in at("%v =")
    assert "func.func @first(%a: index, %b: index) attributes {grid = [4]}" in at("@first")
    assert "affine_set" in at("#box,")
    assert ops()["ktdp.construct_memory_view"].text in at("ktdp.construct_memory_view")
    assert "addi" in at("arith.addi")
    assert at("// %a") == ""
    add = "func.func @f(%x: tensor<8x64xf16>) {\n  %y = arith.addf %x, %x : tensor<8x64xf16>\n  return\n}\n"
    found = hover(Index(add), place(add, "%y"), check(add))
    assert found is not None
    assert "1,024 bytes" in found.markdown


def test_types_stay_known_while_a_function_is_typed() -> None:
    analysis = check(TEXT)
    typed = TEXT.replace("  return\n", "  %w = arith.addi %v", 1)
    found = hover(Index(typed), place(typed, "%v", 1), analysis)
    assert found is not None
    assert "memref<4xf16>" in found.markdown


def test_completion() -> None:
    analysis = check(TEXT)

    def after(typed: str, where: str = "  scf.yield") -> dict[str, str]:
        text = TEXT.replace(where, typed + "\n" + where, 1)
        return {item.label: item.detail for item in complete(Index(text), text.index(typed) + len(typed), analysis)}

    values = after("    %z = arith.addi %")
    assert values["%acc"] == "index"
    assert {"%t", "%i", "%c4", "%a"} <= values.keys()
    assert not {"%m", "%z"} & values.keys()
    assert "%t" not in after("  %z = arith.addi %", "  return")
    assert {"@first", "@second"} == set(after("  func.call @s"))
    assert "#box" in after("  %z = ktdp.construct_memory_view %a {coordinate_set = #")
    assert "!ktdp.access_tile" in after("  %z = ktdp.load %t : !kt")
    assert set(after("  x {memory_space = #ktdp.memory_space<gl")) == {"global", "ct_local", "ct_local, ct_id = "}
    assert "ktir.layout" not in after("  %z = ktdp.load %t {")
    assert "coordinate_set" in after("  %z = ktdp.construct_memory_view %a, sizes: [4], strides: [1] {")
    assert {"ktdp.load", "arith.addf", "scf.for"} <= after("  ktdp.").keys()
    head = "func.func @f() attributes {"
    assert "grid" in {item.label for item in complete(Index(head), len(head))}


def test_everything_that_there_is_has_a_description() -> None:
    assert [name for name, entry in (ops() | parameters()).items() if not entry.text and name.startswith(("ktdp", "kt", "spyre"))] == []
