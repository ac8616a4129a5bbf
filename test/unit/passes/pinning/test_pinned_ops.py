"""Every op of scalars, and named op, in a pinned kernel: the stream has the executor's bits. What is refused has a list."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from pinned import equal, package_of

from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.vector_kinds import SCALAR_OPS
from ktir.registry import dialect_class
from ktir.runtime import metrics

TYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
ROWS = 4
ONE = {"f16": "1.0", "f32": "1.0", "i32": "1"}

SPYREOP = {
    **{f"spyreop.{n}": f"%r = spyreop.{n} %a : T" for n in "exp reciprocal sigmoid silu sqrt rsqrt gelu".split()},
    "spyreop.realdiv": "%r = spyreop.realdiv %a, %b : T",
    "spyreop.compare": "\n".join(
        f"%p{k} = spyreop.compare <{predicate}> %a, %b : T\n%r{k + 1 if k < 5 else ''} = arith.addf {f'%r{k}' if k else '%c'}, %p{k} : T"
        for k, predicate in enumerate(("equal", "notequal", "greaterthan", "greaterequal", "lesserthan", "lesserequal"))
    ),
    "spyreop.select": "%r = spyreop.select %a, %b, %c : T",
    "spyreop.softplus": "%r = spyreop.softplus %a beta -2.0 threshold 3.0 : T",
    "spyreop.layernormscale": "%o = spyreop.layernormscale %a : T\n%q = spyreop.layernormscale %a squares %b : T\n"
    "%r = arith.addf %o, %q : T",
    "spyreop.layernormnorm": "%r = spyreop.layernormnorm %a squares %b scale %c weight %a bias %b : T",
    "spyreop.constant": "%k = spyreop.constant 1.5 : T\n%r = arith.mulf %a, %k : T",
    "spyreop.addi32toi32": "%r = spyreop.addi32toi32 %a, %b",
    "spyreop.muli32toi32": "%r = spyreop.muli32toi32 %a, %b",
    "spyreop.exx2": "%m, %s = spyreop.exx2 %a : T\n%o = arith.mulf %m, %b : T\n%r = arith.addf %o, %s : T",
    **{
        f"spyreop.{n}": f"%p = spyreop.{pair} %b : T -> !spyreop.T_fused\n%o = spyreop.layernormscale_fused %p : !spyreop.T_fused -> T\n"
        "%r = arith.mulf %a, %o : T"
        for n, pair in (*((n, n) for n in ("exx2_fused", "exx2_zeromean_fused")), ("layernormscale_fused", "exx2_fused"))
    },
    "spyreop.addi64toi64": "%k = arith.constant 65535 : i32\n%s = arith.andi %a, %k : i32\n%p = arith.extsi %s : i32 to i64\n"
    "%q = spyreop.addi64toi64 %p, %p\n%r = arith.trunci %q : i64 to i32",
    "spyreop.idx32toaddr": "%o = spyreop.idx32toaddr %a base 0xDEADBEEF stride 4\n%r = spyreop.idx32toaddr %o base %b stride %c",
}
ON_TENSORS = {"spyreop.slice_reduction"}  # test_pinned_slices.py
NAMED = {
    1: "exp log abs ceil floor negf reciprocal round sqrt rsqrt square tanh erf copy".split(),
    2: "add sub mul div max min powf".split(),
}
"""Ops of `linalg` by the number of their operands; those with regions of an author's, and matmuls, have tests of their own."""

_BINARY_MATH = ("math.copysign", "math.powf", "math.atan2")
_ON_INTEGERS = {"spyreop.addi64toi64", "spyreop.addi32toi32", "spyreop.muli32toi32", "spyreop.idx32toaddr"}
_MASKED = "%m = arith.{} %a, %b : T\n%r = arith.select %m, %a, %c : T"


def body(name: str, type_: str) -> str | None:
    """Ops that make %r of %a, %b and %c; None where the op is not on the type."""
    operation = name.partition(".")[2]
    floats = type_ != "i32"
    if name in SPYREOP:
        wrong = (name in _ON_INTEGERS) == floats or (type_ == "f32" and operation in ("gelu", "softplus"))
        pair = {"f16": "fp16_fused", "f32": "fp32_fused"}.get(type_, "")
        return None if wrong else SPYREOP[name].replace("T_fused", pair).replace("T", type_)
    conversions = {
        "arith.truncf": ("f32", "%h = arith.truncf %a : f32 to f16\n%r = arith.extf %h : f16 to f32"),
        "arith.extf": ("f16", "%h = arith.extf %a : f16 to f32\n%s = arith.mulf %h, %h : f32\n%r = arith.truncf %s : f32 to f16"),
        "arith.sitofp": ("i32", "%h = arith.sitofp %a : i32 to f32\n%r = arith.bitcast %h : f32 to i32"),
        "arith.uitofp": ("i32", "%h = arith.uitofp %a : i32 to f32\n%r = arith.bitcast %h : f32 to i32"),
        "arith.fptosi": ("f32", "%h = arith.fptosi %a : f32 to i32\n%r = arith.bitcast %h : i32 to f32"),
        "arith.fptoui": ("f32", "%h = arith.fptoui %a : f32 to i32\n%r = arith.bitcast %h : i32 to f32"),
        "arith.bitcast": ("f32", "%h = arith.bitcast %a : f32 to i32\n%s = arith.addi %h, %h : i32\n%r = arith.bitcast %s : i32 to f32"),
        "arith.extsi": ("i32", "%m = arith.cmpi slt, %a, %b : i32\n%r = arith.extsi %m : i1 to i32"),
        "arith.extui": ("i32", "%m = arith.cmpi slt, %a, %b : i32\n%r = arith.extui %m : i1 to i32"),
    }
    if name in conversions:
        only, text = conversions[name]
        return text if only == type_ else None
    if name == "arith.constant":
        return f"%k = arith.constant {ONE[type_]} : T\n%r = arith.{'addf' if floats else 'addi'} %a, %k : T".replace("T", type_)
    if name in ("arith.cmpf", "arith.cmpi", "arith.select"):
        if name == ("arith.cmpi" if floats else "arith.cmpf"):
            return None
        return _MASKED.format("cmpf ult," if floats else "cmpi slt,").replace("T", type_)
    on_floats = operation.endswith("f") or (name.startswith("math.") and operation != "absi")
    if on_floats != floats or (name == "math.fma" and type_ == "f16"):
        return None
    if name == "math.fma":
        return "%r = math.fma %a, %b, %c : f32"
    one = name == "arith.negf" or (name.startswith("math.") and name not in _BINARY_MATH)
    return f"%r = {name} %a{'' if one else ', %b'} : {type_}"


def kernel(bodies: Mapping[str, str], type_: str) -> str:
    """Two tiles; op number k makes rows k * 8 and on of %y, four of each tile."""
    total = 2 * ROWS * len(bodies)
    text = [
        "func.func @kernel(%x: index, %u: index, %v: index, %y: index) attributes {grid = [2]} {",
        "%t = ktdp.get_compute_tile_id : index",
        f"%rows = arith.constant {ROWS} : index\n%zero = arith.constant 0 : index\n%first = arith.muli %t, %rows : index",
    ]
    space, order = "memory_space = #ktdp.memory_space<global>", "access_tile_order = affine_map<(r, c) -> (r, c)>"
    box = "affine_set<(r, c) : (r >= 0, -r + {} >= 0, c >= 0, -c + 63 >= 0)>"
    tensor, tile, like = f"tensor<{ROWS}x64x{type_}>", f"!ktdp.access_tile<{ROWS}x64xindex>", "affine_map<(r, c) -> (r, c)>"
    for n, rows in {**dict.fromkeys("xuv", 2 * ROWS), "y": total}.items():
        text.append(
            f"%{n}v = ktdp.construct_memory_view %{n}, sizes: [{rows}, 64], strides: [64, 1] "
            f"{{coordinate_set = {box.format(rows - 1)}, {space}}} : memref<{rows}x64x{type_}>"
        )
    for n in "xuv":
        text.append(
            f"%{n}t = ktdp.construct_access_tile %{n}v[%first, %zero] {{access_tile_set = {box.format(ROWS - 1)}, {order}}} : "
            f"memref<{2 * ROWS}x64x{type_}> -> {tile}\n%{n}l = ktdp.load %{n}t : {tile} -> {tensor}"
        )
    text.append(f"%e = tensor.empty() : {tensor}")
    for k, (name, ops) in enumerate(bodies.items()):
        if name.startswith("linalg."):
            text.append(f"%g{k} = {ops.format(tensor=tensor)} outs(%e : {tensor}) -> {tensor}")
        else:
            text.append(
                f'%g{k} = linalg.generic {{indexing_maps = [{", ".join([like] * 4)}], iterator_types = ["parallel", "parallel"]}} '
                f"ins(%xl, %ul, %vl : {tensor}, {tensor}, {tensor}) outs(%e : {tensor}) {{\n"
                f"^bb0(%a: {type_}, %b: {type_}, %c: {type_}, %out: {type_}):\n{ops}\nlinalg.yield %r : {type_}\n}} -> {tensor}\n"
            )
        text.append(
            f"%at{k} = arith.constant {2 * ROWS * k} : index\n%row{k} = arith.addi %first, %at{k} : index\n"
            f"%s{k} = ktdp.construct_access_tile %yv[%row{k}, %zero] {{access_tile_set = {box.format(ROWS - 1)}, {order}}} : "
            f"memref<{total}x64x{type_}> -> {tile}\nktdp.store %g{k}, %s{k} : {tensor}, {tile}"
        )
    return "\n".join([*text, "return", "}"]) + "\n"


def numbers(type_: str, count: int) -> list[np.ndarray]:
    """Small and large ones, zeros of both signs, NaN and infinities; as divisors of integers none is zero."""
    rng = np.random.default_rng(7)
    shape = (2 * ROWS, 64)
    if type_ == "i32":
        given = [rng.integers(-(2**31), 2**31, shape), rng.integers(1, 40, shape), rng.integers(-9, 9, shape)]
    else:
        given = [rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape) for _ in range(3)]
        for k, special in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan)):
            given[0][k, k], given[1][k, k + 1], given[2][k, k + 2] = special, special, special
    return [*(a.astype(TYPES[type_]) for a in given), np.zeros((2 * ROWS * count, 64), TYPES[type_])]


def spyreops() -> list[str]:
    with context():
        return [c.OPERATION_NAME for c in dialect_class("spyreop").operations]


def named(name: str, count: int) -> str:
    operands = ("%xl", "%ul")[:count]
    return f"linalg.{name} ins({', '.join(operands)} : {', '.join(['{tensor}'] * count)})"


@pytest.mark.parametrize("family", ["spyreop", "scalar", "linalg"])
@pytest.mark.parametrize("type_", TYPES)
def test_ops(type_: str, family: str) -> None:
    if family == "linalg":
        wanted = "add sub mul max min copy".split() if type_ == "i32" else [*NAMED[1], *NAMED[2]]
        bodies = {f"linalg.{name}": named(name, count) for count, names in NAMED.items() for name in names if name in wanted}
    else:
        names = SPYREOP if family == "spyreop" else SCALAR_OPS
        bodies = {name: ops for name in names if (ops := body(name, type_)) is not None}
    with metrics.counted() as launches:
        equal(kernel(bodies, type_), numbers(type_, len(bodies)))
    assert launches().chip == 2  # one in each mode


def test_every_op_is_in_a_body_or_on_tensors() -> None:
    """A new op is written here: with its ops, or among those that take no scalars, which have tests of their own."""
    assert set(spyreops()) == SPYREOP.keys() | ON_TENSORS
    for name in (*SCALAR_OPS, *SPYREOP):
        assert any(body(name, type_) for type_ in TYPES), name


@pytest.mark.parametrize("type_", ["f16", "f32"])
def test_statistics_over_reduced_loops(type_: str) -> None:
    """A row of 100 elements: its mean, and the mean of its squares, one of each per row; in machine order."""
    space, order = "memory_space = #ktdp.memory_space<global>", "access_tile_order = affine_map<(r, c) -> (r, c)>"
    box = "affine_set<(r, c) : (r >= 0, -r + {} >= 0, c >= 0, -c + {} >= 0)>"
    tensors = [f"tensor<4x100x{type_}>", f"tensor<4x{type_}>"]
    kinds = 'iterator_types = ["parallel", "reduction"]'
    maps = "indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r)>]"
    text = f"""func.func @kernel(%x: index, %m: index, %s: index) attributes {{grid = [2]}} {{
      %t = ktdp.get_compute_tile_id : index
      %c4 = arith.constant 4 : index
      %c0 = arith.constant 0 : index
      %first = arith.muli %t, %c4 : index
      %xv = ktdp.construct_memory_view %x, sizes: [8, 100], strides: [100, 1]
        {{coordinate_set = {box.format(7, 99)}, {space}}} : memref<8x100x{type_}>
      %xt = ktdp.construct_access_tile %xv[%first, %c0]
        {{access_tile_set = {box.format(3, 99)}, {order}}} : memref<8x100x{type_}> -> !ktdp.access_tile<4x100xindex>
      %a = ktdp.load %xt : !ktdp.access_tile<4x100xindex> -> {tensors[0]}
      %e = tensor.empty() : {tensors[1]}
      %r:2 = linalg.generic {{{maps}, {kinds}}} ins(%a : {tensors[0]}) outs(%e, %e : {tensors[1]}, {tensors[1]}) {{
      ^bb0(%i: {type_}, %j: {type_}, %k: {type_}):
        %n = arith.addf %i, %i : {type_}
        %p, %q = spyreop.exx2 %n : {type_}
        linalg.yield %p, %q : {type_}, {type_}
      }} -> ({tensors[1]}, {tensors[1]})
"""
    for name, result in (("m", "%r#0"), ("s", "%r#1")):
        text += f"""%{name}v = ktdp.construct_memory_view %{name}, sizes: [8], strides: [1]
        {{coordinate_set = affine_set<(r) : (r >= 0, -r + 7 >= 0)>, {space}}} : memref<8x{type_}>
      %{name}t = ktdp.construct_access_tile %{name}v[%first] {{access_tile_set = affine_set<(r) : (r >= 0, -r + 3 >= 0)>,
        access_tile_order = affine_map<(r) -> (r)>}} : memref<8x{type_}> -> !ktdp.access_tile<4xindex>
      ktdp.store {result}, %{name}t : {tensors[1]}, !ktdp.access_tile<4xindex>
"""
    x = np.random.default_rng(3).standard_normal((8, 100)).astype(TYPES[type_])
    equal(text + "return\n}\n", [x, *np.zeros((2, 8), TYPES[type_])])


def test_intrinsics_without_a_grid() -> None:
    """A program that is planned has them too: a layer norm whose statistics are those of rows."""
    box = "coordinate_set = affine_set<(r, c) : (r >= 0, -r + 5 >= 0, c >= 0, -c + 99 >= 0)>"
    text = "func.func @kernel(%x: index, %y: index) {\n%zero = arith.constant 0 : index\n"
    for name in "xy":
        text += f"""%{name}v = ktdp.construct_memory_view %{name}, sizes: [6, 100], strides: [100, 1]
          {{{box}, memory_space = #ktdp.memory_space<global>}} : memref<6x100xf16>
        %{name}t = ktdp.construct_access_tile %{name}v[%zero, %zero] {{{box.replace("coordinate", "access_tile")},
          access_tile_order = affine_map<(r, c) -> (r, c)>}} : memref<6x100xf16> -> !ktdp.access_tile<6x100xindex>
"""
    text += """%a = ktdp.load %xt : !ktdp.access_tile<6x100xindex> -> tensor<6x100xf16>
      %e = tensor.empty() : tensor<6x100xf16>
      %r = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>],
        iterator_types = ["parallel", "parallel"]} ins(%a : tensor<6x100xf16>) outs(%e : tensor<6x100xf16>) {
      ^bb0(%i: f16, %o: f16):
        %m, %s = spyreop.exx2 %i : f16
        %c = spyreop.layernormscale %m squares %s : f16
        %d = arith.subf %i, %m : f16
        %n = arith.mulf %d, %c : f16
        %g = spyreop.sigmoid %n : f16
        linalg.yield %g : f16
      } -> tensor<6x100xf16>
      ktdp.store %r, %yt : tensor<6x100xf16>, !ktdp.access_tile<6x100xindex>
      return
    }
"""
    x = np.random.default_rng(0).standard_normal((6, 100)).astype(np.float16)
    equal(text, [x, np.zeros_like(x)])


def test_others_are_refused_by_op_and_place() -> None:
    pair = "%r = spyreop.exx2_fused %a : f16 -> !spyreop.fp16_fused"
    text = kernel({"pair": pair}, "f16").replace("outs(%e : tensor<4x64xf16>)", "outs(%o : tensor<4x64x!spyreop.fp16_fused>)")
    text = text.replace("%out: f16", "%out: !spyreop.fp16_fused").replace("yield %r : f16", "yield %r : !spyreop.fp16_fused")
    text = text.replace("} -> tensor<4x64xf16>", "} -> tensor<4x64x!spyreop.fp16_fused>").replace(
        "%e = tensor.empty() : tensor<4x64xf16>", "%o = tensor.empty() : tensor<4x64x!spyreop.fp16_fused>"
    )
    text = re.sub(r"ktdp.store %g0.*", "", text)
    with pytest.raises(KtirError, match=r"gives a pair of floats, which is no type of the device") as error:
        package_of(text)
    assert (error.value.location or "").startswith("kernel.mlir:")
