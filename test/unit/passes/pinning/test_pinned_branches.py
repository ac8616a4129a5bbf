"""Branches that give values: tensors and numbers, by the tile, by the trip, and where all tiles take one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pinned import equal, package_of

from ktir import lang
from ktir.diagnostics import Unsupported
from ktir.emulator.reference import execute

BOX = "affine_set<(r, c) : (r >= 0, -r + {} >= 0, c >= 0, -c + 99 >= 0)>"
VIEW = """%{n}v = ktdp.construct_memory_view %{n}, sizes: [{rows}, 100], strides: [100, 1]
  {{coordinate_set = {box}, memory_space = #ktdp.memory_space<global>}} : memref<{rows}x100xf16>
"""
TILE = """%{t} = ktdp.construct_access_tile %{n}v[{at}, %zero] {{access_tile_set = {box},
  access_tile_order = affine_map<(r, c) -> (r, c)>}} : memref<{rows}x100xf16> -> !ktdp.access_tile<2x100xindex>
"""


def tile(name: str, memory: str, at: str, rows: int = 12) -> str:
    return TILE.format(t=name, n=memory, at=at, box=BOX.format(1), rows=rows)


def kernel(condition: str) -> str:
    """Three tiles, each with two trips over two rows: where the condition holds of tile %t and trip %i, the rows in order doubled,
    else those from the other end, as they are."""
    text = "func.func @kernel(%x: index, %y: index) attributes {grid = [3]} {\n%t = ktdp.get_compute_tile_id : index\n"
    text += "".join(f"%{n} = arith.constant {k} : index\n" for k, n in enumerate(("zero", "one", "two", "three", "four")))
    text += "%ten = arith.constant 10 : index\n"
    text += "".join(VIEW.format(n=n, rows=12, box=BOX.format(11)) for n in "xy")
    text += f"""scf.for %i = %zero to %two step %one {{
      %p = arith.muli %t, %four : index
      %q = arith.muli %i, %two : index
      %at = arith.addi %p, %q : index
      {condition}
      %v, %to = scf.if %c -> (tensor<2x100xf16>, index) {{
        {tile("a", "x", "%at")}
        %l = ktdp.load %a : !ktdp.access_tile<2x100xindex> -> tensor<2x100xf16>
        %d = arith.addf %l, %l : tensor<2x100xf16>
        scf.yield %d, %at : tensor<2x100xf16>, index
      }} else {{
        %other = arith.subi %ten, %at : index
        {tile("b", "x", "%other")}
        %m = ktdp.load %b : !ktdp.access_tile<2x100xindex> -> tensor<2x100xf16>
        %same = arith.addi %other, %zero : index
        %back = arith.subi %ten, %same : index
        scf.yield %m, %back : tensor<2x100xf16>, index
      }}
      {tile("o", "y", "%to")}
      ktdp.store %v, %o : tensor<2x100xf16>, !ktdp.access_tile<2x100xindex>
    }}
    return
    }}
"""
    return text


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("%c = arith.cmpi eq, %t, %one : index", lambda t, i: t == 1),
        ("%c = arith.cmpi eq, %i, %one : index", lambda t, i: i == 1),
        ("%w = arith.addi %t, %i : index\n%c = arith.cmpi sgt, %w, %one : index", lambda t, i: t + i > 1),
        ("%c = arith.cmpi slt, %t, %four : index", lambda t, i: True),
    ],
    ids=["tile", "trip", "both", "always"],
)
def test_branches_give_values(condition: str, holds: Callable[[int, int], bool]) -> None:
    x = np.random.default_rng(5).standard_normal((12, 100)).astype(np.float16)
    x[0, 0], x[11, 99] = np.inf, np.nan  # what a branch that is not taken loads does not count
    wanted, found = np.zeros((2, 12, 100), np.float16)
    for at in range(0, 12, 2):
        wanted[at : at + 2] = x[at : at + 2] * 2 if holds(at // 4, at % 4 // 2) else x[10 - at : 12 - at]
    execute(kernel(condition), None, [x.copy(), found])
    assert np.array_equal(found, wanted, equal_nan=True)
    equal(kernel(condition), [x, np.zeros_like(x)])


@lang.kernel
def added_now_and_then(x, y):
    t = lang.tile_id()
    own = lang.buffer((4, 64))
    own[...] = x[t]
    for i in lang.range(3):

        @lang.when((t + i) % 2 == 0)
        def _() -> None:
            own[...] = own[...] + x[t] * 2

    y[t] = own[...]


@lang.kernel
def a_row_of_one_tile(x, y):
    t = lang.tile_id()
    own = lang.buffer((4, 64))
    own[...] = x[t]

    @lang.when(t == 0)
    def _() -> None:
        own[...] = x[t] * 7
        own[1] = x[t, 0]

    y[t] = lang.broadcast(own[...]) + own[...]


@lang.kernel
def odd_rows_of_halves(x, y):
    t = lang.tile_id()
    own = lang.buffer((3, 60), np.float16)
    own[...] = x[t, :3, :60].astype(np.float16)

    @lang.when(t > 0)
    def _() -> None:
        own[...] = -own[...]

    @lang.when(t == 1)
    def _() -> None:
        own[...] = own[...] * own[...]

    y[t, :3, :60] = own[...].astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "tiles"),
    [(added_now_and_then, 4), (added_now_and_then, 40), (a_row_of_one_tile, 4), (odd_rows_of_halves, 4), (odd_rows_of_halves, 40)],
)
def test_the_scratchpad_of_some_tiles(kernel: Any, tiles: int) -> None:
    """What all tiles have written before, some may change."""
    x = np.random.default_rng(0).standard_normal((tiles, 4, 64)).astype(np.float32)
    equal(kernel[tiles].ktir(x, x), [x, np.zeros_like(x)])


@lang.kernel
def written_by_one(x, y):
    own = lang.buffer((4, 64))

    @lang.when(lang.tile_id() == 0)
    def _() -> None:
        own[...] = x[0]
        y[0] = own[...] * 2


def test_what_others_have_not_written_is_refused() -> None:
    """The stream would read what nobody has written."""
    x = np.ones((4, 4, 64), np.float32)
    with pytest.raises(
        Unsupported, match=r"scratchpad on some tiles only, where not all of them have written before, .* by 'arith\.select'"
    ):
        package_of(written_by_one[4].ktir(x, x))
