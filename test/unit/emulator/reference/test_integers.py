"""Integer ops against Python's integers: every width, divisions without quotient, shifts beyond the width."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from combinations import each_once
from kernel_texts import kernel, load, store, tensor

import ktir
from ktir.emulator.findings import DivisionByZero, DivisionOverflow
from ktir.emulator.policy import Policy

CARRIER = {"i1": np.bool_, "i2": np.int8, "i4": np.int8, "i7": np.int8, "i8": np.int8, "i16": np.int16, "i24": np.int32, "i32": np.int32}
CARRIER |= {"i64": np.int64}
WIDTH = {e: int(e[1:]) for e in CARRIER}


def values(element: str) -> list[int]:
    """Signed numbers of a type: all of a narrow one, the ends and some of a wide one."""
    bits = WIDTH[element]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if bits <= 4:
        return list(range(low, high + 1))
    return [low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, bits - 1, high - 1, high]


def wrapped(x: int, element: str) -> int:
    bits = WIDTH[element]
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def bare(x: int, element: str) -> int:
    return x & ((1 << WIDTH[element]) - 1)


def quotient(a: int, b: int) -> int:
    """Rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(name: str, a: int, b: int, element: str) -> int:
    bits, count = WIDTH[element], bare(b, element)
    if name == "shrsi":
        return a >> min(count, bits)
    return 0 if count >= bits else a << count if name == "shli" else bare(a, element) >> count


SIGNED: dict[str, Any] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "minsi": min,
    "maxsi": max,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "divsi": quotient,
    "remsi": lambda a, b: a - quotient(a, b) * b,
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
}
UNSIGNED: dict[str, Any] = {
    "divui": lambda a, b: a // b,
    "remui": lambda a, b: a % b,
    "ceildivui": lambda a, b: -(-a // b),
    "minui": min,
    "maxui": max,
}
SHIFTS = ("shli", "shrsi", "shrui")
DIVISIONS = ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")


def expected(name: str, a: int, b: int, element: str) -> int:
    if name in SHIFTS:
        return wrapped(shifted(name, a, b, element), element)
    if name in UNSIGNED:
        return wrapped(UNSIGNED[name](bare(a, element), bare(b, element)), element)
    return wrapped(SIGNED[name](a, b), element)


def overflows(name: str, a: int, b: int, element: str) -> bool:
    return name in ("divsi", "floordivsi", "ceildivsi") and b == -1 and a == -(1 << (WIDTH[element] - 1))


def binary(name: str, n: int, element: str) -> str:
    t = tensor((n,), element)
    text = load("%a", "%arg0", (n,), element=element) + load("%b", "%arg1", (n,), element=element)
    return text + f"%y = arith.{name} %a, %b : {t}\n" + store("%y", "%arg2", (n,), element=element)


def host(x: list[int], element: str) -> np.ndarray:
    return np.array([bool(v) if element == "i1" else v for v in x], CARRIER[element])


@pytest.mark.parametrize(("name", "element"), each_once([*SIGNED, *UNSIGNED, *SHIFTS], sorted(CARRIER)))
def test_data(name, element):
    pairs = list(itertools.product(values(element), repeat=2))
    if name in DIVISIONS:
        pairs = [(a, b) for a, b in pairs if b and not overflows(name, a, b, element)]
    a, b = (host([p[k] for p in pairs], element) for k in range(2))
    if name in UNSIGNED and element in ("i7", "i24"):  # bits beyond the width of the type do not matter
        a = a ^ a.dtype.type(-1 << WIDTH[element])
    y = np.zeros_like(a)
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], binary(name, len(pairs), element)), args=[a, b, y])
    np.testing.assert_array_equal(y, host([expected(name, p[0], p[1], element) for p in pairs], element))


@pytest.mark.parametrize(("name", "element"), each_once([*SIGNED, *UNSIGNED, *SHIFTS], ["i4", "i8", "i32", "i64"]))
def test_numbers(name, element):
    """Known while recording: the same values."""
    pairs = list(itertools.product(values(element)[::3], values(element)[1::4]))
    if name in DIVISIONS:
        pairs = [(a, b) for a, b in pairs if b and not overflows(name, a, b, element)]
    text = ""
    for k, (a, b) in enumerate(pairs):
        text += f"%a{k} = arith.constant {a} : {element}\n%b{k} = arith.constant {b} : {element}\n"
        text += f"%r{k} = arith.{name} %a{k}, %b{k} : {element}\n"
    shape = (len(pairs),)
    text += f"%y = tensor.from_elements {', '.join(f'%r{k}' for k in range(len(pairs)))} : {tensor(shape, element)}\n"
    y = np.zeros(shape, CARRIER[element])
    ktir.execute(kernel(["%arg0"], text + store("%y", "%arg0", shape, element=element)), args=[y])
    assert y.tolist() == [expected(name, a, b, element) for a, b in pairs], pairs


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("element", ["i1", "i4", "i8", "i32", "i64"])
def test_division_by_zero_in_data(name, element):
    """The finding names op, place and element, and no array is touched."""
    a, b, y = host([1, 1, 1, 1], element), host([1, 1, 0, 1], element), host([0] * 4, element)
    if element == "i1" and name in ("divsi", "floordivsi", "ceildivsi"):
        a = host([0] * 4, element)
    text = kernel(["%arg0", "%arg1", "%arg2"], binary(name, 4, element))
    with pytest.raises(DivisionByZero, match=rf"<text>:\d+:\d+: error: 'arith.{name}' op divides by zero at element \[2\]") as caught:
        ktir.execute(text, args=[a, b, y])
    assert caught.value.op == f"arith.{name}"
    assert caught.value.tiles == (0,)
    assert f"arith.{name}" in text.splitlines()[int(str(caught.value.location).split(":")[-2]) - 1]
    assert not y.any()


@pytest.mark.parametrize("name", ["divsi", "floordivsi", "ceildivsi"])
@pytest.mark.parametrize("element", ["i4", "i8", "i16", "i32", "i64"])
def test_quotient_that_the_type_cannot_hold(name, element):
    least = -(1 << (WIDTH[element] - 1))
    a, b, y = host([least, least], element), host([1, -1], element), host([0, 0], element)
    with pytest.raises(DivisionOverflow, match=rf"divides {least} by -1, which {element} cannot hold at element \[1\]") as caught:
        ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], binary(name, 2, element)), args=[a, b, y])
    assert caught.value.kind == "division-overflow"
    number = f"%a = arith.constant {least} : {element}\n%b = arith.constant -1 : {element}\n%r = arith.{name} %a, %b : {element}\n"
    with pytest.raises(DivisionOverflow, match=f"arith.{name}"):
        ktir.execute(kernel([], number))
    # Its remainder is 0 like that of any number.
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], binary("remsi", 2, element)), args=[a, b, y])
    assert not y.any()


def rows(body: str, *, grid: str = "4", element: str = "i32") -> str:
    """Each tile has its row of the arguments as %a and %b, and stores %y."""
    at: dict[str, Any] = {"index": ("%t", 0), "extents": (1, 3), "element": element}
    text = "%t = ktdp.get_compute_tile_id : index\n" + load("%a", "%arg0", (4, 3), **at) + load("%b", "%arg1", (4, 3), **at)
    return kernel(["%arg0", "%arg1", "%arg2"], text + body + store("%y", "%arg2", (4, 3), **at), grid)


def test_division_by_zero_names_the_tiles():
    t = tensor((1, 3), "i32")
    a, b, y = np.ones((4, 3), np.int32), np.ones((4, 3), np.int32), np.zeros((4, 3), np.int32)
    b[1, 2] = b[3, 0] = 0
    with pytest.raises(DivisionByZero, match=r"at element \[0, 2\] \(tile 1\)") as caught:
        ktir.execute(rows(f"%y = arith.divsi %a, %b : {t}\n"), args=[a, b, y])
    assert caught.value.tiles == (1, 3)
    body = (
        f"%e = tensor.empty() : {t}\n%y = linalg.generic {{indexing_maps = [{', '.join(['affine_map<(i, j) -> (i, j)>'] * 3)}], "
        f'iterator_types = ["parallel", "parallel"]}} ins(%a, %b : {t}, {t}) outs(%e : {t}) {{\n^bb0(%p: i32, %q: i32, %r: i32):\n'
        f"%s = arith.addi %p, %p : i32\n%d = arith.remsi %s, %q : i32\nlinalg.yield %d : i32\n}} -> {t}\n"
    )
    with pytest.raises(DivisionByZero, match=r"'arith.remsi' op divides by zero at element \[0, 2\] \(tile 1\)") as caught:
        ktir.execute(rows(body), args=[a, b, y])
    assert caught.value.tiles == (1, 3)


def test_tiles_that_do_not_divide_do_not_fail():
    t = tensor((1, 3), "i32")
    guarded = (
        "%c1 = arith.constant 1 : index\n%c0 = arith.constant 0 : index\n%w = tensor.extract %b[%c0, %c0] : " + t + "\n"
        "%z = arith.constant 0 : i32\n%go = arith.cmpi ne, %w, %z : i32\n%y = scf.if %go -> (" + t + ") {\n"
        f"%d = arith.divsi %a, %b : {t}\nscf.yield %d : {t}\n}} else {{\nscf.yield %a : {t}\n}}\n"
    )
    a, b, y = np.full((4, 3), 6, np.int32), np.full((4, 3), 2, np.int32), np.zeros((4, 3), np.int32)
    b[2] = 0
    ktir.execute(rows(guarded), args=[a, b, y])
    np.testing.assert_array_equal(y, np.where(b == 0, 6, 3))


def masked(n: int, divide: str) -> str:
    """Views bounded by `n` read through tiles of 8: what lies beyond reads as zero, and stores of it are dropped."""
    place: dict[str, Any] = {"strides": (1,), "extents": (8,), "element": "i32"}
    text = f"%n = arith.constant {n} : index\n" + load("%a", "%arg0", ("%n",), **place) + load("%b", "%arg1", ("%n",), **place)
    return kernel(["%arg0", "%arg1", "%arg2"], text + divide + store("%y", "%arg2", ("%n",), **place))


def test_elements_beyond_a_masked_view_do_not_fail():
    a, b, y = np.full(5, 12, np.int32), np.array([1, 2, 3, 4, 6], np.int32), np.zeros(5, np.int32)
    t = tensor((8,), "i32")
    ktir.execute(masked(5, f"%y = arith.divsi %a, %b : {t}\n"), args=[a, b, y])
    np.testing.assert_array_equal(y, [12, 6, 4, 3, 2])
    # Also through further ops, slices and copies.
    chain = f"%c = arith.addi %b, %b : {t}\n%e = tensor.empty() : {t}\n%d = linalg.copy ins(%c : {t}) outs(%e : {t}) -> {t}\n"
    ktir.execute(masked(5, chain + f"%y = arith.divui %a, %d : {t}\n"), args=[a, b, y])
    np.testing.assert_array_equal(y, [6, 3, 2, 1, 1])
    b[4] = 0
    with pytest.raises(DivisionByZero, match=r"at element \[4\]"):
        ktir.execute(masked(5, chain + f"%y = arith.divui %a, %d : {t}\n"), args=[a, b, y])


@pytest.mark.parametrize(("name", "extended"), [("addui", 1), ("subui", 1), ("mulsi", 0), ("mului", 0)])
@pytest.mark.parametrize("element", ["i4", "i8", "i32", "i64"])
def test_extended(name, extended, element):
    pairs = list(itertools.product(values(element), repeat=2))
    a, b = (host([p[k] for p in pairs], element) for k in range(2))
    second = "i1" if extended else element
    low, high = np.zeros_like(a), np.zeros(len(pairs), np.bool_ if extended else a.dtype)
    n, t, s = len(pairs), tensor((len(pairs),), element), tensor((len(pairs),), second)
    types = f"{t}, {s}" if extended else t
    text = load("%a", "%arg0", (n,), element=element) + load("%b", "%arg1", (n,), element=element)
    text += f"%y, %z = arith.{name}_extended %a, %b : {types}\n"
    text += store("%y", "%arg2", (n,), element=element) + store("%z", "%arg3", (n,), element=second)
    report = ktir.execute(kernel(["%arg0", "%arg1", "%arg2", "%arg3"], text), args=[a, b, low, high]).report
    assert report.arithmetic == {f"arith.{name}_extended": n}
    bits = WIDTH[element]
    for i, (p, q) in enumerate(pairs):
        if name[-2:] == "ui":
            p, q = bare(p, element), bare(q, element)
        exact = {"addui": p + q, "subui": p - q}.get(name, p * q)
        assert low[i] == wrapped(exact, element)
        assert high[i] == ((exact >> bits) & 1 if extended else wrapped(exact >> bits, element))


@pytest.mark.parametrize(("element", "bits"), [("i4", 4), ("i8", 8), ("i24", 24), ("i64", 64)])
def test_casts(element, bits):
    """To the next width and back, with and without sign, to floats and back."""
    x = host(values(element), element)
    n, wide = len(x), "i64"
    outs: dict[str, np.ndarray] = {}
    text = load("%x", "%arg0", (n,), element=element)
    if bits < 64:
        text += f"%s = arith.extsi %x : {tensor((n,), element)} to {tensor((n,), wide)}\n"
        text += f"%u = arith.extui %x : {tensor((n,), element)} to {tensor((n,), wide)}\n"
        text += f"%b = arith.trunci %u : {tensor((n,), wide)} to {tensor((n,), element)}\n"
        outs = {"s": x.astype(np.int64), "u": np.array([bare(int(v), element) for v in x]), "b": x}
    text += f"%f = arith.sitofp %x : {tensor((n,), element)} to {tensor((n,), 'f64')}\n"
    text += f"%g = arith.uitofp %x : {tensor((n,), element)} to {tensor((n,), 'f64')}\n"
    outs |= {"f": x.astype(np.float64), "g": np.array([bare(int(v), element) for v in x], np.uint64).astype(np.float64)}
    kinds = {"s": wide, "u": wide, "b": element, "f": "f64", "g": "f64"}
    arrays = []
    for k, name in enumerate(outs):
        text += store(f"%{name}", f"%arg{k + 1}", (n,), element=kinds[name])
        arrays.append(np.zeros_like(outs[name]))
    ktir.execute(kernel([f"%arg{i}" for i in range(1 + len(outs))], text), args=[x, *arrays])
    for got, name in zip(arrays, outs, strict=True):
        np.testing.assert_array_equal(got, outs[name], name)


def test_wide_integers_round_once():
    """f64 cannot hold these: rounding to it first would show in bf16 and f32."""
    x = np.array([(1 << 60) + (1 << 52) + 1, (1 << 60) + (1 << 52), (1 << 60) + (1 << 36) + 1, -(1 << 60) - (1 << 52) - 1], np.int64)
    y, z = np.zeros(4, np.uint16), np.zeros(4, np.float32)
    text = load("%x", "%arg0", (4,), element="i64")
    text += f"%y = arith.sitofp %x : {tensor((4,), 'i64')} to {tensor((4,), 'bf16')}\n"
    text += f"%z = arith.sitofp %x : {tensor((4,), 'i64')} to {tensor((4,), 'f32')}\n"
    text += store("%y", "%arg1", (4,), element="bf16") + store("%z", "%arg2", (4,), element="f32")
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text), args=[x, y, z])
    up, even = 2.0**60 * (1 + 2**-7), 2.0**60
    np.testing.assert_array_equal((y.astype(np.uint32) << 16).view(np.float32), [up, even, even, -up])
    assert [int(v) for v in z] == [(1 << 60) + (1 << 52), (1 << 60) + (1 << 52), (1 << 60) + (1 << 37), -(1 << 60) - (1 << 52)]


@pytest.mark.parametrize("kind", ["addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori"])
@pytest.mark.parametrize("element", ["i4", "i24"])
def test_reductions_of_odd_widths(kind, element):
    x = np.array([values(element)[:7], values(element)[-7:]], CARRIER[element])
    start = host([1, -1], element)
    y = np.zeros_like(start)
    text = load("%x", "%arg0", (2, 7), element=element) + load("%s", "%arg1", (2,), element=element)
    text += (
        f"%y = linalg.reduce {{ arith.{kind} }} ins(%x : {tensor((2, 7), element)}) outs(%s : {tensor((2,), element)}) dimensions = [1]\n"
    )
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text + store("%y", "%arg2", (2,), element=element)), args=[x, start, y])
    want = []
    for row, first in zip(x, start, strict=True):
        total = int(first)
        for v in row:
            total = expected(kind, total, int(v), element)
        want.append(total)
    np.testing.assert_array_equal(y, host(want, element))


def test_constants_of_odd_widths():
    y = np.zeros(4, np.int8)
    text = "%y = arith.constant dense<[1, -2, 7, -8]> : tensor<4xi4>\n" + store("%y", "%arg0", (4,), element="i4")
    ktir.execute(kernel(["%arg0"], text), args=[y])
    np.testing.assert_array_equal(y, [1, -2, 7, -8])
    text = "%y = arith.constant dense<-3> : tensor<4xi4>\n" + store("%y", "%arg0", (4,), element="i4")
    ktir.execute(kernel(["%arg0"], text), args=[y])
    np.testing.assert_array_equal(y, [-3] * 4)


def test_matmul_of_odd_widths_wraps():
    a = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    y = np.zeros((3, 3), np.int8)
    t, o = tensor((3, 4), "i4"), tensor((3, 3), "i4")
    text = load("%a", "%arg0", (3, 4), element="i4") + "%z = arith.constant dense<0> : tensor<3x3xi4>\n"
    text += f"%e = tensor.empty() : tensor<4x3xi4>\n%b = linalg.transpose ins(%a : {t}) outs(%e : tensor<4x3xi4>) permutation = [1, 0]\n"
    text += f"%y = linalg.matmul ins(%a, %b : {t}, tensor<4x3xi4>) outs(%z : {o}) -> {o}\n"
    ktir.execute(kernel(["%arg0", "%arg1"], text + store("%y", "%arg1", (3, 3), element="i4")), args=[a, y])
    b = ((a.astype(int) + 8) % 16) - 8
    np.testing.assert_array_equal(y, ((b @ b.T + 8) % 16) - 8)


def test_findings_of_numbers_that_differ_between_tiles():
    text = "%t = ktdp.get_compute_tile_id : index\n%c = arith.constant 6 : index\n%q = arith.remui %c, %t : index\n"
    with pytest.raises(DivisionByZero) as caught:
        ktir.execute(kernel([], text, "4"))
    assert caught.value.tiles == (0,)
    safe = "%t = ktdp.get_compute_tile_id : index\n%c0 = arith.constant 0 : index\n%go = arith.cmpi ne, %t, %c0 : index\n"
    safe += "scf.if %go {\n%c = arith.constant 6 : index\n%q = arith.remui %c, %t : index\n}\n"
    ktir.execute(kernel([], safe, "4"), policy=Policy())
