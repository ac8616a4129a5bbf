"""Kernels with a grid become programs for the planner: their values, both ways' prices, and what is not lifted."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from ktir import lang
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import Unsupported, remarks
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.lowering.ktir_lift import LiftPass
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.lifting.whole_program import lift
from ktir.runtime import metrics
from ktir.runtime.executable import Executable

EXAMPLES = Path(__file__).parents[4] / "examples"
sys.path.insert(0, str(EXAMPLES))
import kernels  # noqa: E402

CASES = {call.function.__name__: (call, arrays, parameters, wanted) for call, arrays, parameters, wanted in kernels.cases()}  # pyright: ignore[reportAttributeAccessIssue]
BOX = "affine_set<(r, c) : (r >= 0, -r + {} >= 0, c >= 0, -c + 63 >= 0)>"
ORDER = "affine_map<(r, c) -> (r, c)>"


def kernel(store: str = "%t", load: str = "%t", grid: int = 4, attributes: str = "", arguments: str = "%x: index, %y: index") -> str:
    """y[store] = x[load] + x[load], a row of 64 per tile of a grid."""
    text = f"func.func @rows({arguments}) attributes {{grid = [{grid}]{attributes}}} {{\n  %t = ktdp.get_compute_tile_id : index\n"
    for name, row in (("x", load), ("y", store)):
        text += f"""  %v{name} = ktdp.construct_memory_view %{name}, sizes: [4, 64], strides: [64, 1]
      {{coordinate_set = {BOX.format(3)}, memory_space = #ktdp.memory_space<global>}} : memref<4x64xf16>
  %a{name} = ktdp.construct_access_tile %v{name}[{row}, 0] {{access_tile_set = {BOX.format(0)}, access_tile_order = {ORDER}}} :
      memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>\n"""
    return f"""{text}  %l = ktdp.load %ax : <1x64xindex> -> tensor<1x64xf16>
  %s = arith.addf %l, %l : tensor<1x64xf16>
  ktdp.store %s, %ay : tensor<1x64xf16>, <1x64xindex>
  return\n}}\n"""


def parsed(text: str) -> ir.Module:
    return parse_module(text, "kernel.mlir")


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "linear", "swiglu", "transpose"])
def test_kernels_of_the_language(name: str) -> None:
    """One launch on the chip on more cores than the grid has tiles; the executor's bits on the author's text and on the lifted one."""
    call, arrays, parameters, wanted = CASES[name]
    text = call.traced(*arrays, **parameters).text
    with context(), ir.Location.unknown():
        whole = parsed(text)
        lifted = lift(whole, ())
        assert not lifted.moved
        own, together, on_chip = ([a.copy() for a in arrays] for _ in range(3))
        execute(text, None, own)
        execute(whole, None, together)
        executable = Executable(read(compile_logical(parsed(text), way="lift")))
    with metrics.counted() as launches:
        executable(*on_chip)
    assert (launches().chip, launches().executor) == (1, 0)
    assert all(k.cores > call.grid[0] for k in executable.machine.program.kernels)
    for a, b, c, exact in zip(own[-1:], together[-1:], on_chip[-1:], wanted, strict=True):
        assert a.tobytes() == b.tobytes()
        assert np.abs(c.astype(np.float64) - exact).max() <= 2.0**-9 * np.abs(exact).max()


def test_choice() -> None:
    """Nobody asks: pinned. The faster way with `auto`, sums only within a stated tolerance; the attribute goes before the option."""
    call, arrays, parameters, _ = CASES["softmax"]
    text = call.traced(*arrays, **parameters).text
    stated = text.replace("grid = [4]", 'grid = [4], ktir.way = "auto", ktir.tolerance = 2.0e-3 : f64')

    def told(text: str, **options: object) -> tuple[bool, str]:
        with context(), ir.Location.unknown(), remarks() as found:
            module = parsed(text)
            LiftPass(**options).run(module)  # type: ignore[arg-type]
            return "grid" not in module.body.operations[0].attributes, " ".join(r.message for r in found)

    assert told(text) == (False, "")
    done, why = told(text, way="auto")
    assert not done
    assert "takes a stated tolerance of at least 0.001953125" in why
    done, why = told(stated)
    assert done
    assert "is lifted from 4 tiles: " in why
    assert "cycles; pinned it takes " in why
    assert told(stated, way="pin")[0]
    with pytest.raises(ValueError, match="option 'way' expects one of auto, lift, pin, but got 'lifted'"):
        told(text, way="lifted")


SUMS = """func.func @sums(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %vx = ktdp.construct_memory_view %x, sizes: [4, 128], strides: [128, 1]
      {coordinate_set = affine_set<(r, c) : (r >= 0, -r + 3 >= 0, c >= 0, -c + 127 >= 0)>,
       memory_space = #ktdp.memory_space<global>} : memref<4x128xf16>
  %ax = ktdp.construct_access_tile %vx[%t, 0] {access_tile_set = affine_set<(r, c) : (r == 0, c >= 0, -c + 127 >= 0)>,
      access_tile_order = affine_map<(r, c) -> (r, c)>} : memref<4x128xf16> -> !ktdp.access_tile<1x128xindex>
  %vy = ktdp.construct_memory_view %y, sizes: [4], strides: [1] {coordinate_set = affine_set<(r) : (r >= 0, -r + 3 >= 0)>,
      memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %ay = ktdp.construct_access_tile %vy[%t] {access_tile_set = affine_set<(r) : (r == 0)>, access_tile_order = affine_map<(r) -> (r)>} :
      memref<4xf16> -> !ktdp.access_tile<1xindex>
  %l = ktdp.load %ax : <1x128xindex> -> tensor<1x128xf16>
  %z = arith.constant dense<0.0> : tensor<1xf16>
  %s = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>],
      iterator_types = ["parallel", "reduction"]} ins(%l : tensor<1x128xf16>) outs(%z : tensor<1xf16>) {
  ^bb0(%a: f16, %b: f16):
    %n = arith.addf %b, %a : f16
    linalg.yield %n : f16
  } -> tensor<1xf16>
  ktdp.store %s, %ay : tensor<1xf16>, <1xindex>
  return
}
"""


@pytest.mark.parametrize(
    ("text", "fault", "why"),
    [
        (SUMS, None, r"'linalg.generic' op expects a sum to accumulate in f32, but got 'tensor<4xf16>' \(kernel.mlir:14:8\)"),
        (kernel(), ZeroDivisionError("of ours"), "a fault of ktir: ZeroDivisionError: of ours"),
    ],
)
def test_auto_pins_whatever_stands_in_the_way_of_a_lift(
    text: str, fault: Exception | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of the planner's passes, or a fault of ours: the author's kernel runs on the chip, with the executor's bits."""
    if fault is not None:
        monkeypatch.setattr(LiftPass, "_price", lambda *_: (_ for _ in ()).throw(fault))
    x = np.random.default_rng(3).standard_normal((4, 128 if fault is None else 64)).astype(np.float16)
    expected = np.zeros((4,) if fault is None else (4, 64), np.float16)
    execute(text, None, [x, expected])
    found = np.zeros_like(expected)
    with context(), ir.Location.unknown(), remarks() as said:
        executable = Executable(read(compile_logical(parsed(text), way="auto", tolerance=2.0**-9)))
    with metrics.counted() as launches:
        executable(x, found)
    assert (launches().chip, launches().executor) == (1, 0)
    assert np.array_equal(found.view(np.uint16), expected.view(np.uint16))
    assert re.search(f"is not lifted, so it is pinned: {why}", " ".join(r.message for r in said))


def test_pointwise_needs_no_tolerance() -> None:
    """A row per tile, and in place: the same elements are read and written by one tile."""
    with context(), ir.Location.unknown():
        module = parsed(kernel())
        assert not lift(module, ()).sums
        x, y = np.arange(256, dtype=np.float16).reshape(4, 64), np.zeros((4, 64), np.float16)
        execute(module, None, [x, y])
        assert np.array_equal(y, x + x)
        lift(parsed(kernel().replace("view %y", "view %x")), ())


@lang.kernel
def doubled(x: NDArray[np.float16], y: NDArray[np.float16]) -> None:
    for rows in lang.blocks(x.shape[0], None):
        y[rows] = x[rows] * 2


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 64), (65, 1), (1, 5, 1), (1, 1, 1)])
@pytest.mark.parametrize("way", ["lift", "auto"])
def test_dims_of_one_element(shape: tuple[int, ...], way: Literal["lift", "auto"]) -> None:
    """Ops that no loop walks."""
    x = (np.arange(np.prod(shape), dtype=np.float16) - 3).reshape(shape)
    y = np.zeros(shape, np.float16)
    with metrics.counted() as launches:
        doubled[2].using(on="chip", way=way)(x, y)
    assert (launches().chip, launches().executor) == (1, 0)
    assert np.array_equal(y, x + x)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (kernel(store="0"), "is stored to at several points, of which the last one counts"),
        (kernel(grid=3, store="%t + 1"), None),
        (kernel(load="0").replace("view %y", "view %x"), "writes memory that other tiles read"),
        (kernel(load="%t mod 2"), "brings together dims that run along different blocks|does not tell apart"),
    ],
)
def test_refused(text: str, why: str | None) -> None:
    """What is no partition stays as it was."""
    with context(), ir.Location.unknown():
        module = parsed(text)
        if why is None:
            lift(module, ())
            return
        before = str(module)
        with pytest.raises(Unsupported, match=why):
            lift(module, ())
        assert str(module) == before


@lang.kernel
def never(x, y, z):
    t = lang.tile_id()
    z[t] = x[t]
    for i in lang.range(1):

        @lang.when(i > 0)
        def _():
            y[t] = x[t]


def test_what_no_trip_writes_is_no_result_of_a_program() -> None:
    """The author's words, and not those of the level; pinned it runs."""
    x = np.ones((4, 64), np.float32)
    with pytest.raises(Unsupported, match="stores to 'y' on no tile and in no trip"):
        never[4].using(on="chip", way="lift")(x, np.zeros_like(x), np.zeros_like(x))
    never[4].using(on="chip", way="auto")(x, y := np.zeros_like(x), z := np.zeros_like(x))
    assert (y == 0).all()
    assert (z == 1).all()


@lang.kernel
def tiled_product(x, m, y, *, block, columns):
    for rows, cols in lang.blocks(y.shape, (block, columns)):
        total = lang.zeros((block, columns))
        for k in lang.range(0, x.shape[1], 64):
            total[...] = lang.dot(x.masked[rows, k : k + 64], m.masked[k : k + 64, cols], total)
        y[rows, cols] = total


@pytest.mark.parametrize(("m", "n", "block", "columns"), [(8, 64, 1, 64), (8, 64, 8, 64), (8, 130, 1, 64)])
def test_products_of_a_single_column(m: int, n: int, block: int, columns: int) -> None:
    """Along a dim of a single position nothing is reduced: such a kernel is refused by its op, and pinned where it may be."""
    x, w, y = np.ones((m, 1), np.float16), np.ones((1, n), np.float16), np.zeros((m, n), np.float16)
    tiled = tiled_product[2, 2].using(on="chip")
    with pytest.raises(Unsupported, match=rf"{__file__}:\d+:\d+: error: 'linalg.generic' op reduces along what no operand has more"):
        tiled.using(way="lift")(x, w, y, block=block, columns=columns)
    tiled.using(way="auto")(x, w, y, block=block, columns=columns)
    assert (y == 1).all()
