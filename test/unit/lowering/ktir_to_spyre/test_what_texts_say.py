"""What allocated text says and our own passes never do: the stream does it, or the op is refused by its place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_tiled_kernels import run
from tiled_kernels import LANES, Argument, Kernel, narrowed, tiled
from tiled_programs import Case, half

from ktir.assembly import parse_module
from ktir.checking.stream.compare import check_stream
from ktir.checking.stream.expected import expected
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.emulator.machine import Machine
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import arith, ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

ALLOCATE = "ktir-allocate-scratchpad,ktir-verify-level"


def as_executed(case: Case) -> list[np.ndarray]:
    """The arrays after the stream, which are the executor's and what its KTIR says."""
    wanted = run(case, ALLOCATE)
    with context(), ir.Location.unknown():
        module = parse_module(case.program.text, "kernel.mlir")
        run_pipeline(module, ALLOCATE)
        program = lower_program(module)
        machine = Machine(program, DATASHEET)
        assert check_stream(program, machine.trace, expected(module), DATASHEET) == []
    for mode in ("step", "tape"):
        arrays = case.program.arrays(case.inputs)
        carriers = [a.astype(np.float32) for a in arrays]
        machine.launch(carriers, mode=mode)
        for carrier, array, like in zip(carriers, wanted, arrays, strict=True):
            assert carrier.astype(like.dtype).tobytes() == array.tobytes(), mode
    return wanted


@pytest.mark.parametrize("lanes", [1, 50, 64])
def test_lanes_bounded_by_a_size(lanes: int) -> None:
    """A masked view whose last dim is dynamic: what lies beyond is read as zero, and not written."""
    arguments = [Argument("x", "input", 4 * LANES), Argument("y", "output", 4 * LANES), Argument("z", "output", 4 * LANES)]

    def body(k: Kernel) -> None:
        row = k.times(k.core, 2 * LANES)
        part = k.load(k.view("x", row, [1, 2, k.index(lanes)], [LANES, LANES, 1]), [0, 0, 0], [1, 2, LANES])
        whole = k.load(k.view("x", row, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0], [1, 2, LANES])
        k.store(part, k.view("y", row, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0])
        k.store(whole, k.view("z", row, [1, 2, k.index(lanes)], [LANES, LANES, 1]), [0, 0, 0])

    x = half(np.random.default_rng(0), 4, LANES)
    _, y, z = as_executed(Case(tiled(2, arguments, body), {"x": x}))
    live = np.arange(LANES) < lanes
    assert (y == np.where(live, x, 0)).all()
    assert (z == np.where(live, x, 77)).all()


def doubled(cores: int) -> Case:
    """y = 2 x, a row per core."""

    def body(k: Kernel) -> None:
        views = [k.view(name, k.times(k.core, LANES), [1, 1, LANES], [LANES, LANES, 1]) for name in ("x", "y")]
        value = k.load(views[0], [0, 0, 0], [1, 1, LANES])
        k.store(k.pointwise(lambda v: arith.AddFOp(v, v).result, [1, 1, LANES], "f16", value), views[1], [0, 0, 0])

    x = half(np.random.default_rng(0), cores, LANES)
    return Case(tiled(cores, [Argument(n, r, cores * LANES) for n, r in (("x", "input"), ("y", "output"))], body), {"x": x}, {"y": x + x})


@pytest.mark.parametrize("grid", [[2, 3], [3, 2], [2, 1, 3], [1, 6]])
def test_grids_of_several_dims(grid: list[int]) -> None:
    """All tiles run, each with its own coordinates, the last one the fastest."""
    case = doubled(6)
    place = ' loc("kernel.mlir":1:1)\n'
    weights = [int(np.prod(grid[d + 1 :])) for d in range(len(grid))]
    lines = [f"%at:{len(grid)} = ktdp.get_compute_tile_id : {', '.join(['index'] * len(grid))}", "%zero = arith.constant 0 : index"]
    total = "%zero"
    for d, weight in enumerate(weights):
        lines += [f"%w{d} = arith.constant {weight} : index", f"%m{d} = arith.muli %at#{d}, %w{d} : index"]
        lines += [f"%s{d} = arith.addi {total}, %m{d} : index"]
        total = f"%s{d}"
    text = case.program.text
    (name,) = re.findall(r"(%\w+) = ktdp.get_compute_tile_id", text)
    text = re.sub(r".*ktdp.get_compute_tile_id.*\n", place.join([*lines, ""]), text)
    text = re.sub(rf"{name}\b", total, text).replace("grid = [6]", f"grid = {grid}")
    found = as_executed(Case(type(case.program)(text, case.program.arguments), case.inputs))
    assert (found[1] == case.expected["y"]).all()


def reduced(k: Kernel) -> None:
    value = k.load(k.view("x", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0], [1, 2, LANES])
    column = k.reduce(lambda x, total: arith.AddFOp(total, arith.ExtFOp(ir.F32Type.get(), x).result).result, value, 5.0)
    result = k.pointwise(narrowed, [1, 2, LANES], "f16", column)
    k.store(result, k.view("y", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0])


def multiplied(k: Kernel) -> None:
    value = k.load(k.view("x", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0], [1, 2, LANES])
    weights = k.load(k.view("w", 0, [1, LANES, LANES], [LANES, LANES, 1]), [0, 0, 0], [1, LANES, LANES])
    result = k.matmul(value, lambda n, j: weights, 1, False, lambda v: k.pointwise(narrowed, [1, 2, LANES], "f16", v))
    k.store(result, k.view("y", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0])


ARGUMENTS = [Argument("x", "input", 2 * LANES), Argument("w", "input", LANES * LANES), Argument("y", "output", 2 * LANES)]
TEXTS = {
    "reduction": (reduced, "5.000000e+00", "5.000000e+00", "accumulates into 'outs', which expects 'linalg.fill' of 0.0, what 'add'"),
    "contraction": (multiplied, "0.000000e+00 : f32", "5.000000e+00 : f32", "'linalg.fill' of 0.0 that the loops around carry"),
    "minus zero": (multiplied, "0.000000e+00 : f32", "-0.000000e+00 : f32", "'linalg.fill' of 0.0 that the loops around carry"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_outs_that_the_stream_does_not_read(name: str) -> None:
    """A sum that begins with a number is refused where it stands: the units begin with the identity."""
    body, old, new, message = TEXTS[name]
    text = tiled(1, ARGUMENTS, body).text.replace(old, new)
    with context(), ir.Location.unknown():
        module = parse_module(text, "kernel.mlir")
        run_pipeline(module, ALLOCATE)
        with pytest.raises(Unsupported, match=re.escape(message)) as error:
            lower_program(module)
    assert error.value.location == "kernel.mlir:1:1"


def test_body_that_reads_outs() -> None:
    """What a pointwise op finds in `outs` is no input of the vector unit, and a sum of it twice no sum."""
    for body, old, new, message in (
        (lambda k: doubled_in(k), r"addf (%\w+), %\w+ : f16", r"addf \1, %out : f16", "reads its 'outs' operand"),
        (reduced, r"addf (%\w+), %\w+ : f32", r"addf \1, \1 : f32", "ends a reduction"),
    ):
        text = tiled(1, ARGUMENTS, body).text
        text = re.sub(old, new, text)
        with context(), ir.Location.unknown():
            module = parse_module(text, "kernel.mlir")
            run_pipeline(module, "ktir-allocate-scratchpad")
            with pytest.raises(Unsupported, match=message):
                lower_program(module)


def doubled_in(k: Kernel) -> None:
    value = k.load(k.view("x", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0], [1, 2, LANES])
    result = k.pointwise(lambda v: arith.AddFOp(v, v).result, [1, 2, LANES], "f16", value)
    k.store(result, k.view("y", 0, [1, 2, LANES], [LANES, LANES, 1]), [0, 0, 0])


IN_A_ROW = [Argument("x", "input", 8 * LANES), Argument("w", "input", 2 * LANES * LANES), *(Argument(n, "output", 4 * LANES) for n in "yz")]


def in_a_row(k: Kernel, at_once: bool) -> None:
    """y = x w by two blocks in a row, and z = 2 x between them; `at_once`: other sums begin between them."""
    x = [k.load(k.view("x", n * 4 * LANES, [1, 4, LANES], [4 * LANES, LANES, 1]), [0, 0, 0], [1, 4, LANES]) for n in range(2)]
    w = [
        k.load(k.view("w", n * LANES * LANES, [1, LANES, LANES], [LANES * LANES, LANES, 1]), [0, 0, 0], [1, LANES, LANES]) for n in range(2)
    ]
    y, z = (k.view(name, 0, [1, 4, LANES], [4 * LANES, LANES, 1]) for name in "yz")
    sums = k.block(x[0], w[0], k.filled([1, 4, LANES], "f32", 0.0))
    if at_once:
        other = k.block(x[0], w[1], k.filled([1, 4, LANES], "f32", 0.0))
        k.store(k.pointwise(narrowed, [1, 4, LANES], "f16", other), z, [0, 0, 0])
    else:
        k.store(k.pointwise(lambda v: arith.AddFOp(v, v).result, [1, 4, LANES], "f16", x[1]), z, [0, 0, 0])
    sums = k.block(x[1], w[1], sums)
    k.store(k.pointwise(narrowed, [1, 4, LANES], "f16", sums), y, [0, 0, 0])


def test_a_block_and_a_vector_op_behind_it_run_at_the_same_time() -> None:
    """Sums go on over blocks in a row; LXLU feeds the array and the vector unit together."""
    rng = np.random.default_rng(0)
    x, w = half(rng, 2, 4, LANES), half(rng, 2, LANES, LANES)
    case = Case(tiled(1, IN_A_ROW, lambda k: in_a_row(k, False)), {"x": x, "w": w})
    *_, y, z = as_executed(case)
    wanted = np.einsum("kri,kij->rj", x.astype(np.float64), w.astype(np.float64))
    assert np.abs(y - wanted).max() <= 2**-10 * np.abs(x).max() * np.abs(w).max() * 2 * LANES
    assert (z == 2 * x[1]).all()
    with context(), ir.Location.unknown():
        module = parse_module(case.program.text, "kernel.mlir")
        run_pipeline(module, ALLOCATE)
        words = lower_program(module).kernels[0].units[Unit.LXLU]
    (together,) = (i for i, word in enumerate(words) if word.op == "par")
    assert [word["fifo"] for word in words[together + 1 : together + 1 + words[together]["streams"]]] == ["W", "A", "I0"]


def test_two_sums_at_once() -> None:
    """The array holds one block of sums."""
    with context(), ir.Location.unknown():
        module = parse_module(tiled(1, IN_A_ROW, lambda k: in_a_row(k, True)).text, "kernel.mlir")
        run_pipeline(module, ALLOCATE)
        with pytest.raises(Unsupported, match="adds to sums while the array holds others"):
            lower_program(module)
        with pytest.raises(Unsupported, match="adds to sums while PT holds others"):
            expected(module)
