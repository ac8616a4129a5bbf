"""Arguments of every type, and those that do not fit: a clear error before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import kernel, load, random_f16, store, tensor

import ktir
from ktir.arithmetic import numerics
from ktir.diagnostics import KtirError
from ktir.emulator.findings import OutOfBuffer
from ktir.emulator.reference import Scratch

F16 = np.float16
COPY = kernel(["%arg0", "%arg1"], load("%x", "%arg0", (4,)) + store("%x", "%arg1", (4,)))


def refused(text: str, message: str, args: Any, **kwargs: Any) -> None:
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args] if isinstance(args, list) else []
    with pytest.raises(KtirError, match=message):
        ktir.execute(text, args=args, **kwargs)
    for a, b in zip(args if isinstance(args, list) else [], before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)


def structured() -> np.ndarray:
    return np.zeros(4, [("a", F16)])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, F16).astype(">f2"), "argument 1 of 'kernel' expects an array in the byte order of this machine, but got >f2"),
        (np.zeros((2, 2), F16, order="F"), "expects a C-contiguous array"),
        (np.zeros(8, F16)[::2], "expects a C-contiguous array"),
        (np.zeros(8, F16)[::-1], "expects a C-contiguous array"),
        (np.broadcast_to(F16(1), (4,)), "expects a C-contiguous array"),
        (np.array([None] * 4), "expects a float or a signed integer type, or uint8"),
        (np.array(["a"] * 4), "expects a float or a signed integer type"),
        (np.zeros(4, np.complex64), "expects a float or a signed integer type"),
        (np.zeros(4, np.uint32), "expects a float or a signed integer type"),
        (np.zeros(4, np.longdouble), "expects a float or a signed integer type"),
        (structured(), "expects a float or a signed integer type"),
        (np.ma.masked_array(np.zeros(4, F16), mask=[True, False, False, False]), "expects an array without a mask"),
        (np.zeros(4, np.float32), "as f16, but it is an array of f32"),
        (np.zeros(3, F16), "elements 0 to 3 of 'argument 1' of 3 elements"),
        ([1.0, 2.0], "expects an array or an address, but got list"),
        (float("nan"), "expects an array or an address, but got float"),
        (1 << 63, "expects index, from -9223372036854775808 to 9223372036854775807, but got 9223372036854775808"),
        (-(1 << 70), "expects index"),
        (-5, "elements -5 to -2 of 'global memory'"),
        (1 << 62, "of 'global memory' of 549755813888 elements"),
        (Scratch(-1), "cannot be scratch memory of -1 elements"),
        (Scratch(4, "f7"), "has element type 'f7'"),
        (np.array(None), "but got NoneType"),
    ],
    ids=lambda x: None if isinstance(x, str) else type(x).__name__,
)
def test_what_is_no_buffer(array, message):
    refused(COPY, message, [random_f16(4), array])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (5, "expects arguments by name or in a sequence, but got int"),
        ("xy", "expects arguments by name or in a sequence, but got str"),
        ([], "takes 2 arguments, but got 0"),
        ([np.zeros(4, F16)] * 3, "takes 2 arguments, but got 3"),
        ({"arg0": np.zeros(4, F16)}, "argument 1 of 'kernel' is missing"),
        ({"arg0": np.zeros(4, F16), "arg1": np.zeros(4, F16), "z": 1}, "no argument named 'z'"),
    ],
)
def test_wrong_number_and_names(args, message):
    refused(COPY, message, args)


def scalar(element: str) -> str:
    text = f"%y = tensor.splat %s : {tensor((1,), element)}\n" + store("%y", "%arg0", (1,), element=element)
    return kernel(["%arg0", f"%s: {element}"], text)


@pytest.mark.parametrize("bits", [1, 4, 8, 16, 32, 64])
def test_integers_must_fit(bits):
    element = f"i{bits}"
    dtype = np.bool_ if bits == 1 else np.int8 if bits == 4 else np.dtype(f"i{bits // 8}")
    low, high = (0, 1) if bits == 1 else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    for value in (low, high, np.int64(high), np.array(low)):
        y = np.zeros(1, dtype)
        ktir.execute(scalar(element), args=[y, value])
        assert y[0] == value
    for value in (low - 1, high + 1, 1 << 70):
        refused(scalar(element), f"expects {element}, from {low} to {high}, but got", [np.zeros(1, dtype), value])
    for value in (1.0, "1", None, [1], np.zeros(1, dtype)):
        refused(scalar(element), "argument 1", [np.zeros(1, dtype), value])


@pytest.mark.parametrize("element", ["f16", "bf16", "f8E4M3FN", "f8E5M2", "f32", "f64"])
def test_floats_are_rounded(element):
    dtype = np.dtype(numerics.BITS[element] if element in numerics.BITS else f"f{int(element[1:]) // 8}")
    for value in (0.1, 1, -3, np.float32(0.3), np.array(2.5), True, float("nan"), float("inf"), 1e30, 1e-9):
        y = np.zeros(1, dtype)
        ktir.execute(scalar(element), args=[y, value])
        with np.errstate(over="ignore"):
            want = np.array([value], np.float64).astype(np.float32 if element in numerics.NARROW else dtype)
        if element in numerics.NARROW:
            np.testing.assert_array_equal(numerics.decode(element, y), numerics.round_to(element, want.astype(np.float32)))
        else:
            np.testing.assert_array_equal(y, want)
    refused(scalar(element), "beyond all floats", [np.zeros(1, dtype), 10**400])
    refused(scalar(element), f"expects {element}, but got str", [np.zeros(1, dtype), "1"])


def test_arrays_of_no_dimension():
    """A float is a buffer of one element; an integer is an address."""
    x, y = np.array(3, F16), np.array(0, F16)
    text = kernel(["%arg0", "%arg1"], load("%x", "%arg0", (1,)) + store("%x", "%arg1", (1,)))
    ktir.execute(text, args=[x, y])
    assert y == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [(slice(0, 6), slice(2, 8)), (slice(0, 8), slice(0, 4)), (slice(3, 4), slice(0, 8))],
)
def test_arrays_that_share_a_part(first, second):
    x = np.zeros(8, F16)
    refused(COPY, "argument 1 of 'kernel' shares a part of its memory", [x[first], x[second]])


def test_one_array_twice():
    """The same memory given twice is one buffer, with all checks: here each tile reads what another writes."""
    x = random_f16(4)
    ktir.execute(COPY, args=[x, x])
    refused(COPY, "shares a part of its memory", [x, x.view(np.int16)])
    shift = "%t = ktdp.get_compute_tile_id : index\n%c1 = arith.constant 1 : index\n%n = arith.addi %t, %c1 : index\n"
    shift += load("%v", "%arg0", (5,), index=("%n",), extents=(1,)) + store("%v", "%arg1", (5,), index=("%t",), extents=(1,))
    text = kernel(["%arg0", "%arg1"], shift, "4")
    y = random_f16(5)
    ktir.execute(text, args=[y, y.copy()])
    refused(text, "op (reads|writes) element", [y, y])


def test_read_only():
    x, y = random_f16(4), np.zeros(4, F16)
    x.flags.writeable = False
    ktir.execute(COPY, args=[x, y])
    refused(COPY, r"argument 1 \('arg1'\) of 'kernel' is written, but the array is read-only", [y, x])


def test_places():
    text = kernel([], "%p = arith.constant 64 : index\n" + load("%x", "%p", (4,)) + store("%x", "%p", (4,)))
    x = random_f16(4)
    ktir.execute(text, memory={("global", 64): x})
    for place, message in {
        ("lx", 1, 0): "memory in LX of tile 1: the program has 1 tiles",
        ("global", -1): "expects a place of the form",
        ("hbm", 0): "expects a place of the form",
        ("global", 1.5): "expects a place of the form",
        "global": "expects a place of the form",
    }.items():
        refused(text, message, [], memory={place: x})
    refused(text, "byte order", [], memory={("global", 64): x.astype(">f2")})
    refused(text, "C-contiguous", [], memory={("global", 64): random_f16(8)[::2]})
    refused(text, "expects an array of a float or integer type, but got list", [], memory={("global", 64): [1.0]})
    refused(text, "shares a part", [], memory={("global", 64): x, ("global", 512): x[:2]})
    both = "two arrays share byte 130 of global memory: those at 64 of 4 f16 and at 65 of 4 f16 elements"
    refused(text, both, [], memory={("global", 64): x, ("global", 65): x.copy()})
    x.flags.writeable = False
    refused(text, "memory at an address of 'kernel' is written, but the array is read-only", [], memory={("global", 64): x})


def test_far_addresses():
    """Numbers address a tebibyte; programs that need more memory than there is are refused."""
    far = kernel(["%arg0"], f"%p = arith.constant {1 << 40} : index\n" + load("%x", "%p", (4,)) + store("%x", "%arg0", (4,)))
    with pytest.raises(OutOfBuffer, match="of 'global memory' of 549755813888 elements"):
        ktir.execute(far, args=[np.zeros(4, F16)])


def declared(name: str, strides: str) -> str:
    return f'{{ktir.name = "{name}", ktir.type = tensor<2x4xf16>, ktir.strides = array<i64: {strides}>}}'


ADDED = (
    kernel(
        ["%arg0", "%arg1"],
        load("%x", "%arg0", (2, 4), strides=[1, 2])
        + load("%y", "%arg1", (2, 4))
        + f"%z = arith.addf %x, %y : {tensor((2, 4))}\n"
        + store("%z", "%arg1", (2, 4)),
    )
    .replace("%arg0: index", f"%arg0: index {declared('x', '1, 2')}")
    .replace("%arg1: index", f"%arg1: index {declared('y', '4, 1')}")
)


def test_memory_that_lies_two_ways_and_is_written():
    """What is written to the one would not be seen through the other."""
    x, y = (np.arange(8, dtype=F16).reshape(2, 4) + 8 * k for k in range(2))
    expected = x + y
    ktir.execute(ADDED, args=[x, y])
    np.testing.assert_array_equal(y, expected)
    both = r"argument 0 \('x'\) and argument 1 \('y'\) of 'kernel' share memory, of which the program takes copies that lie otherwise"
    refused(ADDED, both, [x, x])
    refused(ADDED, both, [(whole := np.zeros((3, 4), F16))[:2], whole[1:]])
    rows = np.arange(16, dtype=F16).reshape(4, 4)  # interleaved, but apart
    expected = rows[::2] + rows[1::2]
    ktir.execute(ADDED, args=[rows[::2], rows[1::2]])
    np.testing.assert_array_equal(rows[1::2], expected)
