"""Host arrays on their way to the device: views, element types, extents."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ktir.diagnostics import KtirError, OutOfRange
from ktir.layout import Digit, Layout
from ktir.package import ValueRange
from ktir.runtime.memory.transfer import as_array, from_device, host_view, to_device
from ktir.runtime.memory.view import View, arrangement


def test_strided_views() -> None:
    a = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.testing.assert_array_equal(host_view(a, 0, (4, 3), (1, 4), "a"), a.T)
    np.testing.assert_array_equal(host_view(a, 1, (2, 3), (0, 4), "a"), [a[:, 1], a[:, 1]])
    np.testing.assert_array_equal(host_view(a[:, ::2], 0, (3, 2), (4, 2), "a"), a[:, ::2])


@pytest.mark.parametrize(("offset", "size", "strides"), [(0, (4, 4), (4, 1)), (9, (4,), (1,)), (-1, (2,), (1,)), (0, (2,), (-1,))])
def test_a_view_never_leaves_its_array(offset: int, size: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(KtirError, match="argument 'a' expects at least"):
        host_view(np.zeros((3, 4), np.float16), offset, size, strides, "a")


def test_element_types() -> None:
    with pytest.raises(KtirError, match="expects element type float16, bfloat16 or float32, but got float64"):
        as_array(np.zeros(3), "a")
    with pytest.raises(KtirError, match="expects a tensor of float16, bfloat16 or float32"):
        as_array([1.0, 2.0], "a")


def test_there_and_back_keeps_bits() -> None:
    a = np.random.default_rng(0).standard_normal((57, 100)).astype(np.float16)
    layout = Layout.rows(57, 100)
    out = np.zeros_like(a)
    from_device(to_device(a, layout), layout, out)
    assert out.tobytes() == a.tobytes()


ALL_BITS = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)


@pytest.mark.parametrize("layout", [Layout.rows(256, 256, "bf16"), Layout.rows(256, 256, "f32")])
def test_bfloat16_there_and_back_keeps_bits(layout: Layout) -> None:
    """Of all numbers, given as PyTorch has them, or as bits."""
    given = torch.from_numpy(ALL_BITS.view(np.int16)).view(torch.bfloat16)
    number = (ALL_BITS & 0x7FFF) <= 0x7F80
    entries = to_device(as_array(given, "a"), layout)
    np.testing.assert_array_equal(layout.unpack(entries), given.float().numpy())
    out = np.zeros_like(ALL_BITS)
    from_device(entries, layout, as_array(out, "a", "bf16"))
    np.testing.assert_array_equal(out[number], ALL_BITS[number])
    assert torch.from_numpy(out.view(np.int16)).view(torch.bfloat16)[torch.from_numpy(~number)].isnan().all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_floats_are_rounded_on_the_way(kind: str) -> None:
    values = np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e5, 3.3e38, 3.4e38, 1e-40, -(2.0**-134)]], np.float32)
    wanted = torch.from_numpy(values).to({"f16": torch.float16, "bf16": torch.bfloat16}[kind])
    layout = Layout.rows(1, values.size, kind)
    np.testing.assert_array_equal(layout.unpack(to_device(values, layout)), wanted.float().numpy())
    back = np.zeros(values.shape, np.uint16)
    other = Layout.rows(1, values.size, "f32")
    from_device(to_device(values, other), other, as_array(back, "a", "bf16") if kind == "bf16" else back.view(np.float16))
    np.testing.assert_array_equal(back.view(np.int16), wanted.view(torch.int16).numpy())


BITS = np.array([0, 1, -1, 2**31 - 1, -(2**31), 0x7F800001, 0x7FC12345, -0x400000, 0x00000001, -0x7FFFFFFF], np.int64)
"""Integers whose bits as float32 are NaNs of all kinds, infinities, subnormals, both zeros."""


@pytest.mark.parametrize("shape", [(10,), (2, 5), (5, 2), (1, 10, 1), (10, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integers_keep_their_bits(shape: tuple[int, ...], dtype: type) -> None:
    a = BITS.astype(dtype).reshape(shape)
    for layout in (Layout.rows(shape[:-1], shape[-1], "i32"), Layout.ordered(shape, range(len(shape)), 0, "i32")):
        entries = to_device(a, layout, "a")
        assert entries.dtype == np.int32
        out = np.zeros_like(a)
        from_device(entries.view(np.float32).copy().view(np.int32), layout, out)
        np.testing.assert_array_equal(out, a)


@pytest.mark.parametrize("dtype", [np.int16, np.int8, np.uint8, np.uint16, np.bool_])
def test_narrow_integers(dtype: type) -> None:
    a = np.arange(100).astype(dtype).reshape(4, 25)
    layout = Layout.rows(4, 25, "i32")
    out = np.zeros_like(a)
    from_device(to_device(a, layout, "a"), layout, out)
    np.testing.assert_array_equal(out, a)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62])
def test_integers_beyond_32_bits(value: int) -> None:
    with pytest.raises(KtirError, match=f"argument 'ids' expects integers of -2147483648 to 2147483647, but has {value}"):
        to_device(np.array([1, value]), Layout.linear(2, "i32"), "ids")


def test_unsigned_integers_beyond_31_bits() -> None:
    assert to_device(np.array([7], np.uint32), Layout.linear(1, "i32"), "a")[0, 0] == 7
    with pytest.raises(KtirError, match="but has 4294967295"):
        to_device(np.array([2**32 - 1], np.uint32), Layout.linear(1, "i32"), "a")


def test_bool_is_zero_or_one_and_comes_back_as_not_zero() -> None:
    layout = Layout.linear(3, "i32")
    np.testing.assert_array_equal(to_device(np.array([True, False, True]), layout, "a")[0, :4], [1, 0, 1, 0])
    out = np.zeros(3, np.bool_)
    from_device(np.array([[5, 0, -1] + [0] * 61], np.int32), layout, out)
    np.testing.assert_array_equal(out, [True, False, True])


def test_integers_are_no_floats() -> None:
    with pytest.raises(KtirError, match="expects element type integers or bool, but got float32"):
        as_array(np.zeros(3, np.float32), "a", "i32")
    with pytest.raises(KtirError, match="expects element type float16, bfloat16 or float32, but got int64"):
        as_array(np.zeros(3, np.int64), "a", "f16")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_scalar_there_and_back(dtype: type) -> None:
    layout = Layout((), (Digit(None, 1, 1), Digit(None, 1, 1), Digit(None, 1, 64)), "f16")
    out = np.zeros((), dtype)
    from_device(to_device(np.array(1.5, dtype), layout), layout, out)
    assert out == 1.5


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "bool"])
def test_one_integer(dtype: str) -> None:
    """What a host gives with each launch takes a way of its own: the same values, and the same refusals."""
    item = np.dtype(dtype).itemsize
    place = arrangement(View(dtype, 1, (1,), (1,)), Layout.linear(1, "i32"))
    signed = dtype != "uint8"
    most = min(2 ** (8 * item - signed), 2**31) - 1 if dtype != "bool" else 1
    for value in (0, 1, most, -most - 1 if signed and dtype != "bool" else most):
        linear = np.frombuffer(bytes(item) + int(value).to_bytes(item, "little", signed=value < 0) + b"\x7f" * item, np.uint8)
        carrier = np.zeros((1, 64), np.float32)
        place.pack(linear, carrier, "n", None)
        assert carrier.view(np.int32).tolist() == [[value] + [0] * 63]
        narrow = ValueRange(value + 1, 2**31 - 1)
        if dtype != "bool":
            with pytest.raises(OutOfRange, match=rf"argument 'n' expects integers of {value + 1} to 2147483647, but has {value}"):
                place.pack(linear, carrier, "n", narrow)
    if dtype == "int64":
        for value in (2**31, -(2**31) - 1, 2**63 - 1):
            linear = np.array([0, value, 0]).view(np.uint8)
            with pytest.raises(OutOfRange, match=f"but has {value}"):
                place.pack(linear, carrier, "n", None)
            place.pack(linear, carrier, "n", ValueRange(-(2**63), 2**63 - 1, 64))  # of which the program takes the low bits
            assert carrier.view(np.int32)[0, 0] == (value + 2**31) % 2**32 - 2**31


def test_unsigned_integers_of_the_programs_width_are_signed_ones() -> None:
    place = arrangement(View("uint8", 0, (1,), (1,)), Layout.linear(1, "i32"), 8)
    carrier = np.zeros((1, 64), np.float32)
    place.pack(np.array([200], np.uint8), carrier, "n", ValueRange(-128, 127, 8))
    assert carrier.view(np.int32)[0, 0] == 200 - 256
