"""Diagnostics: all functions are heard, at their places."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from ktir.editor.check import Finding, check, check_changed
from ktir.editor.completion import complete
from ktir.editor.hover import hover
from ktir.editor.text import Index
from ktir.editor.worker import Worker

ROOT = Path(__file__).parents[3]
ADD = (ROOT / "examples" / "add.mlir").read_text()
SAMPLES = [ADD, (ROOT / "examples" / "softmax.mlir").read_text()]
GOOD = "func.func @{name}(%a: index) -> index {{\n  %x = arith.addi %a, %a : index\n  return %x : index\n}}\n"


def places(found: list[Finding]) -> list[tuple[int, int]]:
    return [(f.line, f.column) for f in found if f.severity == "error"]


def test_sound_text() -> None:
    for text in SAMPLES:
        assert check(text).findings == []


def test_an_error_in_one_function_does_not_hide_those_of_another() -> None:
    text = (
        GOOD.format(name="f").replace("%a, %a", "%a, %b")
        + GOOD.format(name="g")
        + GOOD.format(name="h").replace("arith.addi", "arith.addj")
    )
    found = check(text)
    assert places(found.findings) == [(2, 23), (10, 8)]
    assert "undeclared SSA value" in found.findings[0].message
    assert "arith.addj" in found.findings[1].message
    assert [v.type for v in found.values["g"]] == ["index", "index"]


@pytest.mark.parametrize(
    "broken", ["func.func @f(%a: index {\n", "func.func @f(%a: index) {\n  %x = arith.addi %a, \n", "}\n", "#bad = affine_set<(\n"]
)
def test_half_typed_text_before_a_function_leaves_it_its_own_errors(broken: str) -> None:
    bad = GOOD.format(name="g").replace("%a, %a", "%a, %b")
    lines = broken.count("\n")
    assert (lines + 2, 23) in places(check(broken + bad).findings)
    found = check(broken + GOOD.format(name="g"))
    assert found.findings
    assert all(line <= lines + 1 for line, _ in places(found.findings))
    assert [v.name for v in found.values["g"]] == ["%a", "%x"]


def test_a_function_is_read_with_the_aliases_and_declarations_that_it_needs() -> None:
    text = """#map = affine_map<(d0) -> (d0)>
#use = affine_map<(d0) -> (d0 + 1)>
module attributes {ktir.level = "logical"} {
  func.func @f(%a: index) {
    %x = affine.apply #use(%a)
    %y = func.call @g(%x) : (index) -> index
    %z = func.call @g(%x) : (index) -> f16
    return
  }
  func.func @g(%a: index) -> index {
    %x = affine.apply #map(%q)
    return %x : index
  }
}
"""
    assert places(check(text).findings) == [(7, 10), (11, 28)]


def test_what_only_the_functions_together_show() -> None:
    text = GOOD.format(name="f") + GOOD.format(name="f")
    assert [f.message for f in check(text).findings] == ["redefinition of symbol named 'f'"]


def test_parts_are_modules_of_their_own() -> None:
    text = GOOD.format(name="f") + "// -----\n" + GOOD.format(name="f").replace("%a, %a", "%a, %b")
    assert places(check(text).findings) == [(7, 23)]


@pytest.mark.turn
def test_a_long_file_is_answered_at_once() -> None:
    """On 3,000 lines: what an editor asks for at each key, and the check after a change."""
    body = ADD[ADD.index("  func.func") : ADD.rindex("}")]
    text = "module {\n" + "".join(body.replace("@add", f"@add{k}") for k in range(144)) + "}\n"
    assert text.count("\n") > 3000
    opened = []
    for k in range(3):  # as it is opened: another text each time, with an error near its beginning
        other = text.replace("@add", f"@own{k}_").replace("arith.addf %", "arith.addf %no", 1)
        begin = time.process_time()
        some = check_changed(other)
        opened.append(time.process_time() - begin)
        assert not some.settled
        assert some.values
        assert k or set(some.findings) <= set(check(other).findings)
        assert [f.severity for f in some.findings] == ["error"]
    assert min(opened) < 0.2
    check(text)
    asked, checked = [], []
    for k in range(5):  # the best of five: other work on the machine makes each of them longer
        changed = text.replace("%s = arith.addf", f"%sum{k} = arith.addf", 1)
        begin = time.process_time()
        index = Index(changed)
        at = changed.rindex("%b :")
        assert hover(index, at + 1) is None
        assert complete(index, at + 1)
        assert index.definition(at + 1)
        asked.append(time.process_time() - begin)
        found = check_changed(changed)
        checked.append(time.process_time() - begin - asked[-1])
        assert found.settled
        assert found == check(changed)
        sound = check_changed(text.replace("arith.addf", ("arith.mulf", "arith.subf")[k % 2], 1))
        assert not sound.settled
        assert not sound.findings
    assert min(asked) < 0.2
    assert min(checked) < 0.2


def test_what_changes_is_checked_as_the_whole_is() -> None:
    """Changes of functions, of what stands around them, of what they call, and several: as far as a short check goes, it finds the same."""
    text = """#map = affine_map<(d0) -> (d0)>
module {
  func.func @f(%a: index) {
    %x = affine.apply #map(%a)
    %y = func.call @g(%x) : (index) -> index
    return
  }
  func.func @g(%a: index) -> index {
    return %a : index
  }
  func.func @h(%a: index) -> index {
    %b = arith.addi %a, %a : index
    return %b : index
  }
}
"""
    changes = [
        ("%b = arith.addi %a, %a", "%b = arith.addi %a, %c"),
        ("%b = arith.addi %a, %a", "%c = arith.addi %a, %a\n    %b = arith.addi %c, %a"),
        ("-> index {\n    return %a : index", "-> f16 {\n    %o = arith.constant 1.0 : f16\n    return %o : f16"),
        ("affine_map<(d0) -> (d0)>", "affine_map<(d0, d1) -> (d0)>"),
        ("@h", "@g"),
        ("module {", "module {\n  junk"),
        ("affine.apply #map(%a)", "affine.apply #mop(%a)"),
        ("  func.func @h", "  func.func @new() {\n    return\n  }\n  func.func @h"),
        ("return\n  }", "return"),
        ("@g(%x)", "@k(%x)"),
    ]
    for first in range(len(changes)):
        check_changed(text)
        for before, after in (changes[first], changes[first - 1]):
            changed = text.replace(before, after, 1)
            assert changed != text
            found, whole = check_changed(changed), check(changed)
            if found.settled:
                assert found.findings == whole.findings, (before, after)
            else:
                assert set(found.findings) <= set(whole.findings), (before, after)
            assert found.values == whole.values or not found.settled


def mangled(random: Random) -> str:
    """A sample as it may look while somebody types."""
    text = random.choice(SAMPLES)
    if random.random() < 0.3:
        text += random.choice(SAMPLES)
    for _ in range(random.randint(1, 4)):
        at, to = sorted(random.randrange(len(text)) for _ in range(2))
        match random.randrange(4):
            case 0:
                text = text[:to]
            case 1:
                text = text[:at] + text[min(to, at + random.randint(1, 80)) :]
            case 2:
                text = (
                    text[:at]
                    + random.choice(["{", "}", "(", ")", '"', "<", "%", "#", "@", "//", "%x = ", "é", "😀", "\0", "\r\n", "=", ":"])
                    + text[at:]
                )
            case _:
                text = text[:at] + text[to : to + random.randint(1, 200)] + text[at:]
        text = text or " "
    return text


def ask_all(text: str, random: Random) -> None:
    index = Index(text)
    analysis = check(text)
    lines = text.count("\n") + 1
    assert all(1 <= f.line <= lines + 1 and f.column >= 1 for f in analysis.findings), analysis.findings
    assert not any("internal error" in f.message for f in analysis.findings), analysis.findings
    for at in (random.randint(0, len(text)) for _ in range(20)):
        hover(index, at, analysis)
        complete(index, at, analysis)
        index.definition(at)
        assert index.offset(*index.position(at)) == at


@pytest.mark.parametrize("seed", range(3))
def test_half_typed_text(seed: int) -> None:
    random = Random(seed)
    for _ in range(12):
        ask_all(mangled(random), random)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 18))
def test_much_half_typed_text(seed: int) -> None:
    random = Random(seed)
    for _ in range(400):
        ask_all(mangled(random), random)


def test_a_reader_that_ends_is_started_again() -> None:
    worker = Worker()
    try:
        assert worker.check(ADD).findings == []
        assert worker._process is not None
        os.kill(worker._process.pid or 0, signal.SIGKILL)
        worker._process.join()
        assert worker.check(ADD.replace("%a, %b", "%a, %c")).findings[0].message == "use of undeclared SSA value name"
        worker.seconds = 0.0
        assert "takes more than" in worker.check(ADD + " ").findings[0].message
        worker.seconds = 20.0
        assert worker.check(ADD).findings == []
    finally:
        worker.stop()
