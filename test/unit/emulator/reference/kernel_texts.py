"""KTIR text of small kernels at every level, built from pieces, and packing of host arrays into sticks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

LANES = 64


def box(extents: Sequence[int | str]) -> str:
    """The zero-based box as an affine set; a name stands for a symbol."""
    dims = ", ".join(f"d{i}" for i in range(len(extents)))
    symbols = [e for e in extents if isinstance(e, str)]
    names = f"[{', '.join(f's{i}' for i in range(len(symbols)))}]" if symbols else ""
    number = itertools.count()
    bounds = []
    for i, extent in enumerate(extents):
        high = f"s{next(number)} - 1" if isinstance(extent, str) else str(extent - 1)
        bounds.append(f"d{i} >= 0, -d{i} + {high} >= 0")
    return f"affine_set<({dims}){names} : ({', '.join(bounds) or '0 == 0'})>"


def shape_text(shape: Sequence[Any]) -> str:
    return "".join(f"{'?' if isinstance(n, str) else n}x" for n in shape)


def row_major(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * n)
    return strides[: len(shape)]


def memref(sizes: Sequence[int | str], element: str = "f16") -> str:
    return f"memref<{shape_text(sizes)}{element}>"


def view(
    name: str, base: str, sizes: Sequence[int | str], strides: Sequence[int | str], element: str = "f16", space: str = "global"
) -> str:
    masked = "masked, " if any(isinstance(s, str) for s in sizes) else ""
    size_list, stride_list = (", ".join(map(str, x)) for x in (sizes, strides))
    return (
        f"{name} = ktdp.construct_memory_view {base}, sizes: [{size_list}], strides: [{stride_list}] {{coordinate_set = {box(sizes)}, "
        f"{masked}memory_space = #ktdp.memory_space<{space}>}} : {memref(sizes, element)}\n"
    )


def tile(
    name: str,
    of: str,
    index: Sequence[int | str],
    extents: Sequence[int],
    sizes: Sequence[int | str],
    element: str = "f16",
    order: Sequence[int] | None = None,
) -> str:
    dims = ", ".join(f"d{i}" for i in range(len(extents)))
    order = list(range(len(extents))) if order is None else list(order)
    steps = ", ".join(f"d{i}" for i in order)
    result = "x".join([*(str(extents[i]) for i in order), "index"])
    return (
        f"{name} = ktdp.construct_access_tile {of}[{', '.join(map(str, index))}] {{access_tile_order = affine_map<({dims}) -> ({steps})>, "
        f"access_tile_set = {box(extents)}}} : {memref(sizes, element)} -> !ktdp.access_tile<{result}>\n"
    )


def tensor(shape: Sequence[int], element: str = "f16") -> str:
    return f"tensor<{shape_text(shape)}{element}>"


def access(shape: Sequence[int]) -> str:
    return f"<{'x'.join([*map(str, shape), 'index'])}>"


_serial = itertools.count()


def load(
    name: str,
    base: str,
    sizes: Sequence[int | str],
    *,
    strides: Sequence[int | str] | None = None,
    index: Sequence[int | str] | None = None,
    extents: Sequence[int] | None = None,
    element: str = "f16",
    order: Sequence[int] | None = None,
    space: str = "global",
) -> str:
    """View, tile and load in one; without `extents` the whole view."""
    n = next(_serial)
    strides = row_major(sizes) if strides is None else strides  # type: ignore[arg-type]
    extents = sizes if extents is None else extents  # type: ignore[assignment]
    assert extents is not None
    index = [0] * len(sizes) if index is None else index
    shape = [extents[i] for i in order] if order else extents
    return (
        view(f"%view{n}", base, sizes, strides, element, space)
        + tile(f"%tile{n}", f"%view{n}", index, extents, sizes, element, order)
        + f"{name} = ktdp.load %tile{n} : {access(shape)} -> {tensor(shape, element)}\n"
    )


def store(
    name: str,
    base: str,
    sizes: Sequence[int | str],
    *,
    strides: Sequence[int | str] | None = None,
    index: Sequence[int | str] | None = None,
    extents: Sequence[int] | None = None,
    element: str = "f16",
    order: Sequence[int] | None = None,
    space: str = "global",
) -> str:
    """View, tile and store in one; without `extents` the whole view."""
    n = next(_serial)
    strides = row_major(sizes) if strides is None else strides  # type: ignore[arg-type]
    extents = sizes if extents is None else extents  # type: ignore[assignment]
    assert extents is not None
    index = [0] * len(sizes) if index is None else index
    shape = [extents[i] for i in order] if order else extents
    return (
        view(f"%view{n}", base, sizes, strides, element, space)
        + tile(f"%tile{n}", f"%view{n}", index, extents, sizes, element, order)
        + f"ktdp.store {name}, %tile{n} : {tensor(shape, element)}, {access(shape)}\n"
    )


def indirect(name: str, of: str, subscripts: str, extents: Sequence[int], memrefs: str) -> str:
    """An indirect access tile over variables %v0, %v1, ... `memrefs`: the type of `of`, then those of the index views."""
    dims = ", ".join(f"d{i}" for i in range(len(extents)))
    variables = ", ".join(f"%v{i}" for i in range(len(extents)))
    return (
        f"{name} = ktdp.construct_indirect_access_tile intermediate_variables({variables}) {of}[{subscripts}] "
        f"{{variables_space_order = affine_map<({dims}) -> ({dims})>, variables_space_set = {box(extents)}}} : {memrefs} "
        f"-> !ktdp.access_tile{access(extents)}\n"
    )


def generic(
    name: str,
    inputs: Sequence[tuple[str, str, str]],
    out: tuple[str, str, str],
    iterators: str,
    body: str,
    loops: str | None = None,
) -> str:
    """`linalg.generic`. Each operand is (ssa, tensor type, map results); `iterators` has p and r; body arguments are %a, %b, .., %o."""
    dims = loops or ", ".join(f"d{i}" for i in range(len(iterators)))
    maps = ", ".join(f"affine_map<({dims}) -> ({m})>" for _, _, m in (*inputs, out))
    kinds = ", ".join('"parallel"' if i == "p" else '"reduction"' for i in iterators)
    scalars = [t.rstrip(">").split("x")[-1].removeprefix("tensor<") for _, t, _ in (*inputs, out)]
    names = [*"abcdefg"[: len(inputs)], "o"]
    # Names of a body would hide those of the function.
    own = {*names, *re.findall(r"^%(\w+) =", body, re.MULTILINE)}
    body = re.sub(r"%(\w+)", lambda m: f"%in_{m[1]}" if m[1] in own else m[0], body)
    arguments = ", ".join(f"%in_{n}: {t}" for n, t in zip(names, scalars, strict=True))
    ins = f"ins({', '.join(s for s, _, _ in inputs)} : {', '.join(t for _, t, _ in inputs)}) " if inputs else ""
    return (
        f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {ins}outs({out[0]} : {out[1]}) {{\n"
        f"^bb0({arguments}):\n{body}\n}} -> {out[1]}\n"
    )


def empty(name: str, shape: Sequence[int], element: str = "f16") -> str:
    return f"{name} = tensor.empty() : {tensor(shape, element)}\n"


def filled(name: str, value: str, shape: Sequence[int], element: str = "f32") -> str:
    n = next(_serial)
    return (
        f"%fill{n} = arith.constant {value} : {element}\n"
        + empty(f"%init{n}", shape, element)
        + f"{name} = linalg.fill ins(%fill{n} : {element}) outs(%init{n} : {tensor(shape, element)}) -> {tensor(shape, element)}\n"
    )


def function(name: str, arguments: Sequence[str], body: str, attributes: str = "") -> str:
    typed = ", ".join(a if ":" in a else f"{a}: index" for a in arguments)
    return f"func.func @{name}({typed}) {attributes} {{\n{body}return\n}}\n"


def module(*functions: str) -> str:
    return "module {\n" + "".join(functions) + "}\n"


def kernel(arguments: Sequence[str], body: str, grid: str = "") -> str:
    """A module of one function."""
    return module(function("kernel", arguments, body, f"attributes {{grid = [{grid}]}}" if grid else ""))


# Bodies

EXP_OF_DIFFERENCE = "%x = arith.subf %a, %b : f16\n%y = math.exp %x : f16\nlinalg.yield %y : f16"
QUOTIENT = "%x = arith.extf %a : f16 to f32\n%y = arith.divf %x, %b : f32\n%z = arith.truncf %y : f32 to f16\nlinalg.yield %z : f16"
MAXIMUM = "%x = arith.maximumf %a, %o : f16\nlinalg.yield %x : f16"
SUM = "%x = arith.extf %a : f16 to f32\n%y = arith.addf %o, %x : f32\nlinalg.yield %y : f32"
PRODUCTS = (
    "%x = arith.extf %a : f16 to f32\n%y = arith.extf %b : f16 to f32\n%z = arith.mulf %x, %y : f32\n"
    "%w = arith.addf %o, %z : f32\nlinalg.yield %w : f32"
)


def live(columns: int, lane_loop: int = 2, stick_loop: int = 0) -> str:
    """Body text that computes %live: whether the lane is inside the logical tensor."""
    return (
        f"%i0 = linalg.index {stick_loop} : index\n%i1 = linalg.index {lane_loop} : index\n%w = arith.constant {LANES} : index\n"
        f"%i2 = arith.muli %i0, %w : index\n%i3 = arith.addi %i2, %i1 : index\n%n = arith.constant {columns} : index\n"
        "%live = arith.cmpi ult, %i3, %n : index\n"
    )


# Softmax


def softmax_host(rows: int, columns: int) -> str:
    """Logical level."""
    full, per_row = tensor((rows, columns)), tensor((rows,))
    body = load("%x", "%arg0", (rows, columns))
    body += filled("%m0", "0xFC00", (rows,), "f16")
    body += generic("%m", [("%x", full, "d0, d1")], ("%m0", per_row, "d0"), "pr", MAXIMUM)
    body += empty("%e0", (rows, columns))
    body += generic("%e", [("%x", full, "d0, d1"), ("%m", per_row, "d0")], ("%e0", full, "d0, d1"), "pp", EXP_OF_DIFFERENCE)
    body += filled("%s0", "0.0", (rows,))
    body += generic("%s", [("%e", full, "d0, d1")], ("%s0", tensor((rows,), "f32"), "d0"), "pr", SUM)
    body += generic("%y", [("%e", full, "d0, d1"), ("%s", tensor((rows,), "f32"), "d0")], ("%e0", full, "d0, d1"), "pp", QUOTIENT)
    return kernel(["%arg0", "%arg1"], body + store("%y", "%arg1", (rows, columns)))


def softmax_block(x: str, y: str, sticks: int, rows: int, columns: int) -> str:
    """Softmax of the physical tensor `x` [sticks, rows, 64] into SSA value `y`; suffixes keep names apart."""
    full, column, wide = tensor((sticks, rows, LANES)), tensor((1, rows, LANES)), tensor((1, rows, LANES), "f32")
    mask = live(columns)
    maximum = mask + "%c = arith.constant 0xFC00 : f16\n%v = arith.select %live, %a, %c : f16\n"
    maximum += "%r = arith.maximumf %v, %o : f16\nlinalg.yield %r : f16"
    total = mask + "%c = arith.constant 0.0 : f32\n%f = arith.extf %a : f16 to f32\n%v = arith.select %live, %f, %c : f32\n"
    total += "%r = arith.addf %o, %v : f32\nlinalg.yield %r : f32"
    every, first = "d0, d1, d2", "0, d1, 0"
    body = filled("%m0", "0xFC00", (1, rows, LANES), "f16")
    body += generic("%m", [(x, full, every)], ("%m0", column, first), "rpr", maximum)
    body += empty("%e0", (sticks, rows, LANES))
    body += generic("%e", [(x, full, every), ("%m", column, first)], ("%e0", full, every), "ppp", EXP_OF_DIFFERENCE)
    body += filled("%s0", "0.0", (1, rows, LANES))
    body += generic("%s", [("%e", full, every)], ("%s0", wide, first), "rpr", total)
    return body + generic(y, [("%e", full, every), ("%s", wide, first)], ("%e0", full, every), "ppp", QUOTIENT)


def softmax_sticks(rows: int, columns: int) -> str:
    """Laid-out level: one function, physical shapes."""
    shape = (-(-columns // LANES), rows, LANES)
    body = load("%x", "%arg0", shape) + softmax_block("%x", "%y", shape[0], rows, columns) + store("%y", "%arg1", shape)
    return kernel(["%arg0", "%arg1"], body)


def per_core(rows: int, share: int) -> str:
    """%t tile id, %rows rows of this core, %off its first element."""
    return (
        "%t = ktdp.get_compute_tile_id : index\n"
        f"%share = arith.constant {share} : index\n%all = arith.constant {rows} : index\n%lanes = arith.constant {LANES} : index\n"
        "%row0 = arith.muli %t, %share : index\n%left = arith.subi %all, %row0 : index\n%rows = arith.minsi %left, %share : index\n"
        "%off = arith.muli %row0, %lanes : index\n%in = arith.addi %arg0, %off : index\n%out = arith.addi %arg1, %off : index\n"
    )


def softmax_divided(rows: int, columns: int, share: int) -> str:
    """Divided level: uneven last core through masked views."""
    sticks = -(-columns // LANES)
    place: dict[str, Any] = {"strides": (rows * LANES, LANES, 1), "extents": (sticks, share, LANES)}
    sizes = (sticks, "%rows", LANES)
    body = per_core(rows, share) + load("%x", "%in", sizes, **place)
    body += softmax_block("%x", "%y", sticks, share, columns) + store("%y", "%out", sizes, **place)
    return kernel(["%arg0", "%arg1"], body, str(-(-rows // share)))


def softmax_tiled(rows: int, columns: int, share: int, block: int, *, uneven_trips: bool = False) -> str:
    """Tiled level: blocks of rows. With `uneven_trips` each core loops over its own rows only."""
    sticks = -(-columns // LANES)
    place: dict[str, Any] = {"strides": (rows * LANES, LANES, 1), "extents": (sticks, block, LANES), "index": (0, "%i", 0)}
    sizes = (sticks, "%rows", LANES)
    body = per_core(rows, share) + f"%c0 = arith.constant 0 : index\n%step = arith.constant {block} : index\n"
    body += f"scf.for %i = %c0 to {'%rows' if uneven_trips else '%share'} step %step {{\n"
    body += load("%x", "%in", sizes, **place) + softmax_block("%x", "%y", sticks, block, columns) + store("%y", "%out", sizes, **place)
    return kernel(["%arg0", "%arg1"], body + "}\n", str(-(-rows // share)))


def softmax_allocated(rows: int, columns: int, share: int, block: int, buffers: int = 2) -> str:
    """Allocated level: every value passes through LX, inputs and outputs rotate through `buffers` places."""
    sticks = -(-columns // LANES)
    slot = sticks * block * LANES
    shape, column = (sticks, block, LANES), (1, block, LANES)
    place: dict[str, Any] = {"strides": (rows * LANES, LANES, 1), "extents": shape, "index": (0, "%i", 0)}
    sizes = (sticks, "%rows", LANES)
    lx: dict[str, Any] = {"space": "ct_local"}
    text = softmax_block("%xl", "%y", sticks, block, columns)
    # The pieces of the block, with a trip through LX after each value.
    first, second, third, fourth = (f"{part}\n" for part in _pieces(text))
    body = per_core(rows, share) + f"%c0 = arith.constant 0 : index\n%step = arith.constant {block} : index\n"
    for name, value in (("ax", 0), ("ay", buffers * slot), ("am", 2 * buffers * slot), ("as", buffers * slot + column[1] * LANES)):
        body += f"%{name} = arith.constant {value} : index\n"
    body += f"%slot = arith.constant {slot} : index\n%nbuf = arith.constant {buffers} : index\n"
    body += "scf.for %i = %c0 to %share step %step {\n%trip = arith.divui %i, %step : index\n%ph = arith.remui %trip, %nbuf : index\n"
    body += "%po = arith.muli %ph, %slot : index\n%px = arith.addi %ax, %po : index\n%py = arith.addi %ay, %po : index\n"
    body += load("%x", "%in", sizes, **place) + store("%x", "%px", shape, **lx) + load("%xl", "%px", shape, **lx)
    body += first + store("%m", "%am", column, **lx)
    body += load("%xl2", "%px", shape, **lx) + load("%ml", "%am", column, **lx)
    body += second.replace("%xl,", "%xl2,").replace("%m :", "%ml :") + store("%e", "%px", shape, **lx) + load("%el", "%px", shape, **lx)
    body += third.replace("ins(%e ", "ins(%el ") + store("%s", "%as", column, element="f32", **lx)
    body += load("%el2", "%px", shape, **lx) + load("%sl", "%as", column, element="f32", **lx)
    body += fourth.replace("%e, %s :", "%el2, %sl :") + store("%y", "%py", shape, **lx)
    body += load("%yl", "%py", shape, **lx) + store("%yl", "%out", sizes, **place)
    return kernel(["%arg0", "%arg1"], body + "}\n", str(-(-rows // share)))


def _pieces(text: str) -> list[str]:
    """The text of a softmax block cut after each `linalg.generic`."""
    lines, pieces, current = text.splitlines(), [], []
    for line in lines:
        current.append(line)
        if line.startswith("} -> "):
            pieces.append("\n".join(current))
            current = []
    return pieces


def softmax_reference(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True).astype(np.float64))
    return e / e.sum(1, keepdims=True)


# Other kernels


def matmul_tiled(m: int, k: int, n: int, share: int) -> str:
    """A loop over output sticks and one over K with the accumulator carried; K tails by masked views."""
    n0, k0 = -(-n // LANES), -(-k // LANES)
    acc, block = tensor((1, share, LANES), "f32"), (1, LANES, LANES)
    body = "%t = ktdp.get_compute_tile_id : index\n"
    for name, value in (
        ("c0", 0),
        ("c1", 1),
        ("c64", LANES),
        ("n0", n0),
        ("k0", k0),
        ("K", k),
        ("M", m),
        ("share", share),
        ("sa", m * LANES),
    ):
        body += f"%{name} = arith.constant {value} : index\n"
    body += "%row0 = arith.muli %t, %share : index\n%left = arith.subi %M, %row0 : index\n%rows = arith.minsi %left, %share : index\n"
    body += "%off = arith.muli %row0, %c64 : index\n%out = arith.addi %arg2, %off : index\n%in = arith.addi %arg0, %off : index\n"
    body += "scf.for %n = %c0 to %n0 step %c1 {\n" + filled("%z", "0.0", (1, share, LANES))
    body += f"%acc = scf.for %k = %c0 to %k0 step %c1 iter_args(%p = %z) -> ({acc}) {{\n"
    body += "%kb = arith.muli %k, %c64 : index\n%kr = arith.subi %K, %kb : index\n%kv = arith.minsi %kr, %c64 : index\n"
    body += "%ko = arith.muli %k, %sa : index\n%ao = arith.addi %in, %ko : index\n"
    body += load("%a", "%ao", (1, "%rows", "%kv"), strides=(m * LANES, LANES, 1), extents=(1, share, LANES))
    strides = (k * LANES, LANES, 1)
    body += load("%b", "%arg1", (n0, "%K", LANES), strides=strides, index=("%n", "%kb", 0), extents=block)
    ins = [("%a", tensor((1, share, LANES)), "0, d0, d2"), ("%b", tensor(block), "0, d2, d1")]
    body += generic("%q", ins, ("%p", acc, "0, d0, d1"), "ppr", PRODUCTS)
    body += f"scf.yield %q : {acc}\n}}\n%h = arith.truncf %acc : {acc} to {tensor((1, share, LANES))}\n"
    place: dict[str, Any] = {"strides": (m * LANES, LANES, 1), "index": ("%n", 0, 0), "extents": (1, share, LANES)}
    body += store("%h", "%out", (n0, "%rows", LANES), **place) + "}\n"
    return kernel(["%arg0", "%arg1", "%arg2"], body, str(-(-m // share)))


def layer_norm(rows: int, columns: int) -> str:
    """Logical level; mean and variance in f32, weight and bias as row vectors."""
    full, wide, per_row = tensor((rows, columns)), tensor((rows,), "f32"), tensor((columns,))
    mean = "%x = arith.extf %a : f16 to f32\n%y = arith.addf %o, %x : f32\nlinalg.yield %y : f32"
    scale = f"%n = arith.constant {1.0 / columns:e} : f32\n%x = arith.mulf %a, %n : f32\nlinalg.yield %x : f32"
    square = "%x = arith.extf %a : f16 to f32\n%y = arith.subf %x, %b : f32\n%z = arith.mulf %y, %y : f32\n"
    square += "%w = arith.addf %o, %z : f32\nlinalg.yield %w : f32"
    final = f"%n = arith.constant {1.0 / columns:e} : f32\n%eps = arith.constant 1.0e-5 : f32\n%v = arith.mulf %c, %n : f32\n"
    final += "%ve = arith.addf %v, %eps : f32\n%r = math.rsqrt %ve : f32\n%x = arith.extf %a : f16 to f32\n%y = arith.subf %x, %b : f32\n"
    final += "%z = arith.mulf %y, %r : f32\n%g = arith.extf %d : f16 to f32\n%zg = arith.mulf %z, %g : f32\n"
    final += "%h = arith.extf %e : f16 to f32\n%q = arith.addf %zg, %h : f32\n%t = arith.truncf %q : f32 to f16\nlinalg.yield %t : f16"
    body = load("%x", "%arg0", (rows, columns)) + load("%g", "%arg1", (columns,)) + load("%h", "%arg2", (columns,))
    body += filled("%z", "0.0", (rows,)) + generic("%s", [("%x", full, "d0, d1")], ("%z", wide, "d0"), "pr", mean)
    body += generic("%mean", [("%s", wide, "d0")], ("%z", wide, "d0"), "p", scale)
    body += generic("%var", [("%x", full, "d0, d1"), ("%mean", wide, "d0")], ("%z", wide, "d0"), "pr", square)
    body += empty("%e0", (rows, columns))
    ins = [("%x", full, "d0, d1"), ("%mean", wide, "d0"), ("%var", wide, "d0"), ("%g", per_row, "d1"), ("%h", per_row, "d1")]
    body += generic("%y", ins, ("%e0", full, "d0, d1"), "pp", final)
    return kernel(["%arg0", "%arg1", "%arg2", "%arg3"], body + store("%y", "%arg3", (rows, columns)))


# Sticks


def pack(host: np.ndarray, pad: float = np.nan) -> np.ndarray:
    """[rows, columns] -> [sticks, rows, 64]."""
    rows, columns = host.shape
    sticks = -(-columns // LANES)
    padded = np.full((rows, sticks * LANES), pad, host.dtype)
    padded[:, :columns] = host
    return np.ascontiguousarray(padded.reshape(rows, sticks, LANES).transpose(1, 0, 2))


def unpack(device: np.ndarray, columns: int) -> np.ndarray:
    sticks, rows, lanes = device.shape
    return np.ascontiguousarray(device.transpose(1, 0, 2)).reshape(rows, sticks * lanes)[:, :columns]


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint16 if x.dtype == np.float16 else np.uint32)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits."""
    np.testing.assert_array_equal(bits(a), bits(b))


def random_f16(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)
