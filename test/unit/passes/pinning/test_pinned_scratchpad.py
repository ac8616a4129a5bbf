"""Views of the scratchpad stay at the bytes that the author gave them, and what the compiler places keeps away; read from the stream."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pinned import equal, loops, package_of
from test_pinned_views import arrays, function, tile, view

from ktir.diagnostics import KtirError
from ktir.runtime.executable import Executable

Shape = tuple[int, int]


def local(name: str, base: str, sizes: Shape, strides: Shape) -> str:
    return view(name, base, sizes, strides).replace("<global>", "<ct_local>")


def moved(n: int, source: str, target: str, shape: Shape, places: tuple[str, str], memory: tuple[Shape, Shape], op: str = "") -> str:
    """Load a tile, perhaps with an op, and store it."""
    type_, there = f"tensor<{shape[0]}x{shape[1]}xf16>", f"<{shape[0]}x{shape[1]}xindex>"
    text = tile(f"i{n}", source, places[0], memory[0], shape) + tile(f"o{n}", target, places[1], memory[1], shape)
    text += f"%v{n} = ktdp.load %i{n} : {there} -> {type_}\n"
    text += f"%w{n} = arith.{op} %v{n}, %v{n} : {type_}\n" if op else ""
    return text + f"ktdp.store %{'w' if op else 'v'}{n}, %o{n} : {type_}, {there}\n"


def touched(executable: Executable) -> set[int]:
    """The bytes of the scratchpad at which descriptors of the stream begin, on the first corelet, of all slots."""
    (kernel,) = executable.machine.program.kernels
    return {d.base for d in kernel.descriptors if d.space == "lx"}


ORIGIN = "%c0, %c0"
WHOLE = (ORIGIN, ORIGIN)


@pytest.mark.parametrize(("address", "rows", "pitch"), [(0, 8, 64), (1024, 8, 128), (4096, 1, 64), (2**19, 2, 64)])
def test_bytes_of_the_author(address: int, rows: int, pitch: int) -> None:
    """What is loaded is there, and is computed from there."""
    shape = (rows, 64)
    text = f"%lx = arith.constant {address} : index\n" + view("p", "%x", shape, (64, 1)) + view("q", "%y", shape, (64, 1))
    text += local("s", "%lx", shape, (pitch, 1)) + moved(0, "%p", "%s", shape, WHOLE, (shape, shape))
    made = equal(function(text + moved(1, "%s", "%q", shape, WHOLE, (shape, shape), "addf"), ("x", "y")), arrays(shape, shape))
    assert 2 * address in touched(made)
    own = {base for base in touched(made) if not 2 * address <= base < 2 * address + rows * pitch * 2}
    assert own


def test_tiles_of_less_than_a_stick() -> None:
    """They have their stick for themselves, in all kernels; what lies beside them is nobody's."""
    for shape, pitch in (((4, 6), 64), ((1, 1), 64), ((2, 70), 128)):
        text = "%lx = arith.constant 192 : index\n" + view("p", "%x", shape, (shape[1], 1)) + view("q", "%y", shape, (shape[1], 1))
        text += local("s", "%lx", shape, (pitch, 1)) + moved(0, "%p", "%s", shape, WHOLE, (shape, shape), "mulf")
        made = equal(function(text + moved(1, "%s", "%q", shape, WHOLE, (shape, shape), "addf"), ("x", "y")), arrays(shape, shape))
        assert 384 in touched(made)


def test_slots_of_the_author() -> None:
    """Two slots that a loop takes in turns: its trips, and their addresses."""
    text = "%lx = arith.constant 2048 : index\n" + view("p", "%x", (16, 64), (64, 1)) + view("q", "%y", (16, 64), (64, 1))
    text += "scf.for %r = %c0 to %c8 step %c1 {\n%row = arith.muli %r, %c2 : index\n%ph = arith.remui %r, %c2 : index\n"
    text += "%off = arith.muli %ph, %c128 : index\n%b = arith.addi %lx, %off : index\n" + local("s", "%b", (2, 64), (64, 1))
    text += moved(0, "%p", "%s", (2, 64), ("%row, %c0", ORIGIN), ((16, 64), (2, 64)))
    text += moved(1, "%s", "%q", (2, 64), (ORIGIN, "%row, %c0"), ((2, 64), (16, 64)), "mulf") + "}\n"
    made = equal(function(text, ("x", "y"), (3,)).replace("grid = [3]", "grid = [1]"), arrays((16, 64), (16, 64)))
    assert loops(made) == {(8,)}
    (kernel,) = made.machine.program.kernels
    assert any(d.base == 4096 and d.buffers == 2 and d.rotate_step == 256 for d in kernel.descriptors if d.space == "lx")


def test_sums_in_the_scratchpad() -> None:
    """What a trip leaves there the next one finds; what was loaded before a store is what was there."""
    text = "%lx = arith.constant 0 : index\n" + view("p", "%x", (16, 64), (64, 1)) + view("q", "%y", (4, 64), (64, 1))
    text += local("s", "%lx", (4, 64), (64, 1)) + moved(0, "%p", "%s", (4, 64), WHOLE, ((16, 64), (4, 64)))
    text += (
        "scf.for %r = %c4 to %c16 step %c4 {\n" + tile("a", "%s", ORIGIN, (4, 64), (4, 64)) + tile("n", "%p", "%r, %c0", (16, 64), (4, 64))
    )
    text += "%u = ktdp.load %a : <4x64xindex> -> tensor<4x64xf16>\n%m = ktdp.load %n : <4x64xindex> -> tensor<4x64xf16>\n"
    text += "%k = arith.addf %u, %m : tensor<4x64xf16>\nktdp.store %k, %a : tensor<4x64xf16>, <4x64xindex>\n"
    text += "%j = arith.subf %u, %k : tensor<4x64xf16>\nktdp.store %j, %a : tensor<4x64xf16>, <4x64xindex>\n}\n"
    equal(function(text + moved(1, "%s", "%q", (4, 64), WHOLE, ((4, 64), (4, 64))), ("x", "y")), arrays((16, 64), (4, 64)))


def test_tiles_of_a_view() -> None:
    """Columns of rows that lie apart, and blocks of rows one after the other."""
    text = "%lx = arith.constant 256 : index\n" + view("p", "%x", (4, 128), (128, 1)) + view("q", "%y", (4, 128), (128, 1))
    text += local("s", "%lx", (4, 128), (128, 1))
    pairs = [f"%{r}, %{c}" for r in ("c0", "c2") for c in ("c0", "c64")]
    for n, at in enumerate(pairs):
        text += moved(n, "%p", "%s", (2, 64), (at, at), ((4, 128), (4, 128)), "addf")
    for n, at in enumerate(pairs):
        text += moved(4 + n, "%s", "%q", (2, 64), (at, at), ((4, 128), (4, 128)), "mulf")
    equal(function(text, ("x", "y")), arrays((4, 128), (4, 128)))


def one(shape: Shape, strides: Shape, address: int = 0, more: str = "") -> str:
    """A kernel that keeps its input in the scratchpad."""
    text = f"%lx = arith.constant {address} : index\n" + view("p", "%x", shape, (shape[1], 1)) + local("s", "%lx", shape, strides)
    return function(text + moved(0, "%p", "%s", shape, WHOLE, (shape, shape)) + more, ("x", "y"))


REFUSED = {
    "expects tiles of the scratchpad whose elements are side by side": one((4, 32), (64, 2)),
    "has 64 bytes of rows of 128 in the scratchpad, of which another access has others": one(
        (4, 32),
        (64, 1),
        0,
        view("q", "%y", (4, 64), (64, 1)) + local("u", "%lx", (4, 64), (64, 1)) + moved(1, "%u", "%q", (4, 64), WHOLE, ((4, 64), (4, 64))),
    ),
    "that begin at multiples of 64 elements": one((4, 32), (32, 1)),
    "has 65 rows in the scratchpad that have to be moved one by one, more than 64": one((65, 64), (64, 1)),
    "begin at multiples of 64 elements": one((4, 64), (72, 1)),
    "reaches byte": one((4, 64), (64, 1), 2**21),
    "shares bytes of the scratchpad with an access that has other rows": one(
        (4, 128),
        (128, 1),
        0,
        view("q", "%y", (4, 64), (64, 1)) + moved(1, "%s", "%q", (2, 64), ("%c0, %c64", ORIGIN), ((4, 128), (4, 64))),
    ),
    "lies in the scratchpad as that of tile 1": one((4, 64), (64, 1)).replace("<ct_local>", "<ct_local, ct_id = 1>"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(KtirError, match=re.escape(message)) as error:
        package_of(REFUSED[message])
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")


ROWS = {
    "odd": ((3, 64), 64, [((3, 64), ORIGIN)]),
    "odd, of less than a stick": ((5, 40), 64, [((5, 40), ORIGIN)]),
    "some": ((4, 64), 64, [((2, 64), ORIGIN), ((2, 64), "%c2, %c0")]),
    "across the halves": ((4, 64), 64, [((2, 64), "%c1, %c0"), ((1, 64), ORIGIN)]),
    "one by one": ((2, 70), 128, [((1, 70), "%c1, %c0"), ((1, 70), ORIGIN)]),
}


@pytest.mark.parametrize("case", ROWS)
def test_other_rows(case: str) -> None:
    """What is stored as a whole is loaded by rows, and the other way: a corelet has half of the rows, a single one is both corelets'."""
    shape, pitch, tiles = ROWS[case]
    memory, strides = (shape, shape), (shape[1], 1)
    text = "%lx = arith.constant 512 : index\n" + local("s", "%lx", shape, (pitch, 1))
    text += "".join(view(name, source, shape, strides) for name, source in (("p", "%x"), ("q", "%y"), ("r", "%z")))
    text += moved(0, "%p", "%s", shape, WHOLE, memory, "mulf")
    text += "".join(moved(1 + n, "%s", "%q", size, (at, at), memory, "addf") for n, (size, at) in enumerate(tiles))
    text += "".join(moved(4 + n, "%p", "%s", size, (at, at), memory, "addf") for n, (size, at) in enumerate(tiles))
    equal(function(text + moved(8, "%s", "%r", shape, WHOLE, memory, "mulf"), ("x", "y", "z")), arrays(shape, shape, shape))


def test_turns() -> None:
    """Cores that idle in the last turn may write their own scratchpad."""
    text = "%t = ktdp.get_compute_tile_id : index\n%lx = arith.constant 128 : index\n" + local("s", "%lx", (1, 64), (64, 1))
    text += view("p", "%x", (40, 64), (64, 1)) + view("q", "%y", (40, 64), (64, 1))
    text += moved(0, "%p", "%s", (1, 64), ("%t, %c0", ORIGIN), ((40, 64), (1, 64)))
    text += moved(1, "%s", "%q", (1, 64), (ORIGIN, "%t, %c0"), ((1, 64), (40, 64)), "addf")
    equal(function(text, ("x", "y"), (40,)), arrays((40, 64), (40, 64)))


def test_values_that_are_kept_twice() -> None:
    """A value that is stored there and used on: the store takes a copy, which a later one may overwrite."""
    text = "%lx = arith.constant 64 : index\n" + view("p", "%x", (2, 64), (64, 1)) + view("q", "%y", (2, 64), (64, 1))
    text += local("s", "%lx", (2, 64), (64, 1)) + tile("a", "%p", ORIGIN, (2, 64), (2, 64)) + tile("b", "%s", ORIGIN, (2, 64), (2, 64))
    text += tile("o", "%q", ORIGIN, (2, 64), (2, 64)) + "%l = ktdp.load %a : <2x64xindex> -> tensor<2x64xf16>\n"
    text += "%d = arith.addf %l, %l : tensor<2x64xf16>\nktdp.store %d, %b : tensor<2x64xf16>, <2x64xindex>\n"
    text += "%e = ktdp.load %b : <2x64xindex> -> tensor<2x64xf16>\nktdp.store %l, %b : tensor<2x64xf16>, <2x64xindex>\n"
    text += "%g = ktdp.load %b : <2x64xindex> -> tensor<2x64xf16>\n%h = arith.mulf %d, %e : tensor<2x64xf16>\n"
    text += "%k = arith.subf %h, %g : tensor<2x64xf16>\nktdp.store %k, %o : tensor<2x64xf16>, <2x64xindex>\n"
    found = arrays((2, 64), (2, 64))
    equal(function(text, ("x", "y")), found)
    assert np.isfinite(found[0]).all()
