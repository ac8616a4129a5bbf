"""Conditionals at the allocated level: taken where a core knows the condition, refused by name and place otherwise."""

from __future__ import annotations

import re

import numpy as np
import pytest
from logical_programs import Logical

from ktir.assembly import parse_module, print_module
from ktir.checking.levels import run_device_level
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.emulator.machine.control.control import control
from ktir.lowering.compile import launch_spec, pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import Package
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET

CORES = 4


def biased() -> Logical:
    """x [30, 70] plus a bias."""
    p = Logical()
    p.output(p.combine("arith.addf", p.input(30, 70), p.input(70), "f16"))
    return p


PROGRAM = biased()


def allocated(cores: int = CORES) -> str:
    """The program in several blocks of rows; what is not stored stays as it was."""
    with context(), ir.Location.unknown():
        module = parse_module(PROGRAM.text())
        run_pipeline(module, re.sub(r"ktir-tile(\{[^}]*\})?", "ktir-tile{rows=2}", pipeline(cores)))
        return print_module(module, debuginfo=True).replace('"output"', '"input_output"')


def wrapped(before: str, condition: str, what: str = "last store", after: str = "}") -> str:
    """The program with its last store of memory (or the first load of LX) inside an `scf.if` on `condition`, made by the ops `before`."""
    text = allocated()
    place = ' loc("branch.mlir":1:1)'
    stores = list(re.finditer(r"^ *ktdp\.store .*$", text, re.M))
    match = stores[-1] if what == "last store" else stores[0]
    ops = "\n".join(line + place for line in before.splitlines() if line)
    inside = (
        f"{ops}\nscf.if {condition} {{\n{match.group()}\n{after}{place}"
        if ops
        else f"scf.if {condition} {{\n{match.group()}\n{after}{place}"
    )
    return text[: match.start()] + inside + text[match.end() :]


def tile_id(text: str) -> str:
    found = re.search(r"(%\w+) = ktdp\.get_compute_tile_id", text)
    assert found
    return found.group(1)


def run(text: str) -> np.ndarray:
    """The result: the executor's, with the machine's bits in both modes and a stream that is what its KTIR says."""
    arrays = PROGRAM.arrays()
    arrays[-1][:] = 7
    with context(), ir.Location.unknown():
        module = parse_module(text, "allocated.mlir")
        run_pipeline(module, "ktir-verify-level")
        expected = run_device_level(module, arrays)[-1]
        program = lower_program(module)
        package = Package(program, launch_spec(module, program), {"allocated.ktir.mlir": text.encode()})
    assert check_package(package, control(program, DATASHEET)) == []
    executable = Executable(package)
    for mode in ("tape", "step"):
        copies = [a.copy() for a in arrays]
        executable(*copies, mode=mode)
        assert copies[-1].tobytes() == expected.tobytes(), mode
    return expected


def rows_of(cores: list[int]) -> list[bool]:
    share = -(-30 // CORES)
    return [row // share in cores for row in range(30)]


@pytest.mark.parametrize(
    ("before", "condition", "cores"),
    [
        ("%cond = arith.constant true", "%cond", [0, 1, 2, 3]),
        ("%cond = arith.constant false", "%cond", []),
        ("%two = arith.constant 2 : index\n%cond = arith.cmpi eq, {t}, %two : index", "%cond", [2]),
        ("%two = arith.constant 2 : index\n%cond = arith.cmpi ult, {t}, %two : index", "%cond", [0, 1]),
        (
            "%two = arith.constant 2 : index\n%r = arith.remui {t}, %two : index\n%zero = arith.constant 0 : index\n"
            "%a = arith.cmpi ne, %r, %zero : index\n%b = arith.cmpi sgt, {t}, %two : index\n%cond = arith.andi %a, %b : i1",
            "%cond",
            [3],
        ),
    ],
)
def test_taken(before: str, condition: str, cores: list[int]) -> None:
    """On all cores, on none, on some: what the others would store stays as it was."""
    whole = run(allocated())
    found = run(wrapped(before.replace("{t}", tile_id(allocated())), condition))
    live = np.array(rows_of(cores))
    assert (found[~live] == 7).all()
    assert found[live].tobytes() == whole[live].tobytes()


def test_both_branches() -> None:
    """Each core stores in one of them."""
    text = allocated()
    store = list(re.finditer(r"^ *ktdp\.store .*$", text, re.M))[-1].group()
    before = f"%one = arith.constant 1 : index\n%cond = arith.cmpi ule, {tile_id(text)}, %one : index"
    assert run(wrapped(before, "%cond", after=f"}} else {{\n{store}\n}}")).tobytes() == run(text).tobytes()


@pytest.mark.parametrize(
    ("before", "what", "message"),
    [
        (
            "%one = arith.constant 1 : index\n%cond = arith.cmpi ule, {t}, %one : index",
            "first store",
            "'ktdp.store' op stands in a branch that only some cores take; the nearest supported form stores from LX to memory there",
        ),
        (
            "%one = arith.constant 1 : index\n%cond = arith.cmpi ule, %arg0, %one : index",
            "last store",
            "'arith.cmpi' op compares what is not constant, which no address generator can follow",
        ),
        (
            "%one = arith.constant 1 : index\n%cond = arith.cmpi ule, {loop}, %one : index",
            "last store",
            "'arith.cmpi' op compares what is not constant",
        ),
        (
            "%x = arith.constant 1 : i32\n%cond = arith.trunci %x : i32 to i1",
            "last store",
            "'arith.trunci' op has no lowering to the instruction stream",
        ),
    ],
)
def test_refused(before: str, what: str, message: str) -> None:
    """Nothing is emitted, and the op is named with its place."""
    plain = allocated()
    loops = re.findall(r"scf\.for (%\w+)", plain)
    text = wrapped(before.replace("{t}", tile_id(plain)).replace("{loop}", loops[0]), "%cond", what)
    with context(), ir.Location.unknown():
        module = parse_module(text, "allocated.mlir")
        before_text = print_module(module)
        with pytest.raises(Unsupported, match=re.escape(message)) as error:
            run_pipeline(module, "convert-ktir-to-spyre")
        assert error.value.location
        assert print_module(module) == before_text


def test_values_of_branches_are_refused() -> None:
    text = allocated()
    at = re.search(r"^ *func\.return|^ *return", text[text.index("ktir.lx_bytes") :], re.M)
    assert at
    place = text.index("ktir.lx_bytes") + at.start()
    branch = "%cond = arith.constant true\n%v = scf.if %cond -> (index) {\n%p = arith.constant 1 : index\nscf.yield %p : index\n} else {\n"
    branch += "%q = arith.constant 2 : index\nscf.yield %q : index\n}\n"
    with context(), ir.Location.unknown():
        module = parse_module(text[:place] + branch + text[place:], "allocated.mlir")
        with pytest.raises(Unsupported, match=r"'scf.if' op gives values; the nearest supported form stores them in its branches"):
            lower_program(module)
