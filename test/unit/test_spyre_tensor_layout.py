"""SpyreTensorLayout: the published examples, the identities, and transfers against NumPy."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ktir.layout import Layout
from ktir.spyre_tensor_layout import DataFormats, SpyreTensorLayout, get_device_dtype, get_elem_in_stick, row_major

PUBLISHED = [
    ((5, 10, 200), None, [10, 4, 5, 64], [200, 64, 2000, 1]),
    ((5, 100, 150), None, [100, 3, 5, 64], [150, 64, 15000, 1]),
    ((5, 100, 150), [1, 0, 2], [5, 3, 100, 64], [15000, 64, 150, 1]),
    ((1024, 256), None, [4, 1024, 64], [64, 256, 1]),
    ((1000, 200), None, [4, 1000, 64], [64, 200, 1]),
    ((128, 256, 512), None, [256, 8, 128, 64], [512, 64, 131072, 1]),
    ((512, 1024), None, [16, 512, 64], [64, 1024, 1]),
    ((50, 10, 200), None, [10, 4, 50, 64], [200, 64, 2000, 1]),
    ((64,), None, [1, 64], [64, 1]),
    ((1, 128), None, [2, 1, 64], [64, -1, 1]),
    ((5, 10), [0, 1, -1], [10, 1, 5, 64], [1, -1, 10, -1]),
    ((4, 2048), None, [32, 4, 64], [64, 2048, 1]),
    ((), None, [1, 64], [-1, -1]),
]


@pytest.mark.parametrize(("size", "order", "device", "strides"), PUBLISHED)
def test_published_examples(size: tuple[int, ...], order: list[int] | None, device: list[int], strides: list[int]) -> None:
    layout = SpyreTensorLayout(size, "float16") if order is None else SpyreTensorLayout(size, row_major(size), "float16", order)
    assert (layout.device_size, layout.stride_map) == (device, strides)
    assert layout == SpyreTensorLayout(device, strides, DataFormats.SEN169_FP16)
    assert hash(layout) == hash(SpyreTensorLayout(device, strides, DataFormats.SEN169_FP16))


def test_published_transfer() -> None:
    layout = SpyreTensorLayout((1024, 256), "float16")
    (transfer,) = layout.transfers((1024, 256))
    assert (transfer.ranges, transfer.device_strides, transfer.host_strides) == ((4, 1024, 64), (65536, 64, 1), (64, 256, 1))
    whole, rest = SpyreTensorLayout((100, 150), "float16").transfers((100, 150))
    assert whole == ((2, 100, 64), (64, 150, 1), (6400, 64, 1), 0, 0)
    assert rest == ((100, 22), (150, 1), (64, 1), 128, 12800)


def test_published_numbers() -> None:
    numbers = "SEN169_FP16 IEEE_FP32 INVALID SEN143_FP8 SEN152_FP8 SEN153_FP9 SENINT2 SENINT4 SENINT8 SENINT16 SENINT24 IEEE_INT64 "
    numbers += "IEEE_INT32 SENUINT32 SENUINT2 IEEE_FP16 BOOL BFLOAT16 SEN18F_FP24"
    assert [(f.name, int(f)) for f in DataFormats] == [(name, k) for k, name in enumerate(numbers.split())]
    assert DataFormats(12) is DataFormats.IEEE_INT32
    assert [DataFormats[n].elems_per_stick() for n in ("SEN169_FP16", "IEEE_FP32", "SENINT8", "SENINT4")] == [64, 32, 128, 256]
    with pytest.raises(ValueError, match=r"DataFormats\.INVALID has no known number of elements per stick"):
        DataFormats.INVALID.elems_per_stick()


def test_constructors_by_name() -> None:
    default = SpyreTensorLayout(host_size=(5, 100, 150), dtype="float16")
    assert default == SpyreTensorLayout((5, 100, 150), "float16")
    assert default == SpyreTensorLayout((5, 100, 150), (15000, 150, 1), dtype="float16", dim_order=[0, 1, 2])
    fields: dict[str, Any] = {"device_size": [100, 3, 5, 64], "stride_map": [150, 64, 15000, 1], "device_dtype": DataFormats.SEN169_FP16}
    assert default == SpyreTensorLayout(**fields)
    assert default == SpyreTensorLayout(*list(fields.values()), "STANDARD")  # type: ignore[call-arg]
    assert default != SpyreTensorLayout(**fields, element_arrangement="FP32_TO_DL16")
    wrong: Any
    for wrong in ({"size": (3,), "dtype": "float16"}, {"host_size": (3,)}, fields | {"dtype": "float16"}, {}):
        with pytest.raises(ValueError, match="SpyreTensorLayout expects"):
            SpyreTensorLayout(**wrong)
    with pytest.raises(ValueError, match="expects a device_dtype of DataFormats, but got 'float16'"):
        SpyreTensorLayout([3, 64], [64, 1], "float16")  # type: ignore[arg-type]


def test_print_as_published() -> None:
    text = "SpyreTensorLayout(device_size=[4, 1024, 64], stride_map =[64, 256, 1], device_dtype=DataFormats.SEN169_FP16)"
    assert repr(SpyreTensorLayout((1024, 256), np.float16)) == text
    raw = SpyreTensorLayout([8, 4, 32], [32, 256, 1], DataFormats.IEEE_FP32, element_arrangement="DL16_TO_FP32")
    assert repr(raw).endswith("DataFormats.IEEE_FP32, element_arrangement=ElementArrangement.DL16_TO_FP32)")


def test_raw_layout_with_outer_blocks() -> None:
    """8192 rows as 8 blocks of 1024: published, at a smaller size."""
    raw = SpyreTensorLayout([8, 3, 16, 64], [16 * 192, 64, 192, 1], DataFormats.SEN169_FP16)
    host = np.arange(128 * 192, dtype=np.float32).reshape(128, 192)
    device = raw.pack(host)
    assert device[3, 2, 5, 7] == host[3 * 16 + 5, 2 * 64 + 7]
    np.testing.assert_array_equal(raw.unpack(device, host.shape), host)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[SpyreTensorLayout, tuple[int, ...], list[int]]:
    """A layout with the host size and strides that it was made for."""
    size = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 31, 32, 33, 64, 65, 130]), min_size=1, max_size=3)))
    assume(prod(size) <= 20000)
    memory = draw(st.permutations(range(len(size))))  # which dimension is outermost in the host's memory
    strides = [prod(size[e] for e in memory[memory.index(d) + 1 :]) for d in range(len(size))]
    order = [*draw(st.permutations(range(len(size)))), *draw(st.sampled_from([[], [-1]]))]
    dtype = draw(st.sampled_from(["float16", "float32", "int8", "int64"]))
    return SpyreTensorLayout(size, strides, dtype, order), size, strides


def assert_transfers(layout: SpyreTensorLayout, host: np.ndarray, strides: list[int]) -> None:
    """The descriptors, run as the loops that they are, give what `pack` does, each element once."""
    memory, device = np.zeros(host.size, host.dtype), np.zeros(prod(layout.device_size), host.dtype)
    memory[np.tensordot(strides, np.indices(host.shape), 1).reshape(-1)] = host.reshape(-1)
    copied = 0
    for ranges, host_strides, device_strides, host_offset, device_offset in layout.transfers(host.shape, strides):
        assert list(device_strides) == sorted(device_strides, reverse=True)
        places = np.indices(ranges).reshape(len(ranges), prod(ranges))
        source, target = (np.array(s, int) @ places + o for s, o in ((host_strides, host_offset), (device_strides, device_offset)))
        assert (device[target] == 0).all()
        device[target] = memory[source]
        copied += target.size
    assert copied == host.size
    np.testing.assert_array_equal(device.reshape(layout.device_size), layout.pack(host, strides=strides))


@settings(deadline=None)
@given(layouts())
def test_transfer_and_identities(case: tuple[SpyreTensorLayout, tuple[int, ...], list[int]]) -> None:
    layout, size, strides = case
    assert layout.device_size[-1] == layout.elems_per_stick()
    assert layout.bytes == 128 * prod(layout.device_size) // layout.elems_per_stick()
    host = np.arange(1, prod(size) + 1, dtype=np.int64).reshape(size)
    device = layout.pack(host, strides=strides, fill=-1)
    assert (device != -1).sum() == host.size, "every element once, the rest is padding"
    np.testing.assert_array_equal(layout.unpack(device, size, strides=strides), host)
    assert_transfers(layout, host, strides)
    memory = np.empty(prod(size), np.int64)  # the host's storage, in memory order
    memory[np.tensordot(strides, np.indices(size), 1).reshape(-1)] = host.reshape(-1)
    live = np.argwhere(device != -1)
    for position in live[:: max(1, len(live) // 50)]:
        assert memory[layout.host_offset(position)] == device[tuple(position)]
        assert device.reshape(-1)[layout.device_offset(position)] == device[tuple(position)]


@pytest.mark.parametrize("arrangement", ["DL16_TO_FP32", "FP32_TO_DL16"])
@pytest.mark.parametrize("size", [(5, 128), (3, 2, 192), (64,)])
def test_arrangements_position_by_position(arrangement: str, size: tuple[int, ...]) -> None:
    wide = arrangement == "DL16_TO_FP32"
    plain = SpyreTensorLayout(size, "float32" if wide else "float16")
    layout = SpyreTensorLayout(plain.device_size, plain.stride_map, plain.device_dtype, element_arrangement=arrangement)
    host = np.arange(prod(size)).reshape(size)
    device, standard = layout.pack(host), plain.pack(host)
    assert_transfers(layout, host + 1, row_major(size))
    np.testing.assert_array_equal(layout.unpack(device, size), host)
    stick = 0 if len(size) < 3 else 1  # device dimension of the sticks
    for position in itertools.product(*(range(n) for n in layout.device_size)):
        sticks, lane = position[stick], position[-1]
        if wide:
            column = sticks // 2 * 64 + lane // 4 * 8 + sticks % 2 * 4 + lane % 4
        else:
            column = sticks * 64 + lane // 4 % 2 * 32 + lane // 8 * 4 + lane % 4
        eps = layout.elems_per_stick()
        other = [*position[:-1], column % eps]
        other[stick] = column // eps
        assert device[position] == standard[tuple(other)]


def test_agrees_with_the_layouts_of_the_passes() -> None:
    ours, published = Layout.rows(57, 130), SpyreTensorLayout((57, 130), "float16")
    assert list(ours.device_size) == published.device_size
    assert list(ours.stride_map) == published.stride_map
    host = np.random.default_rng(0).standard_normal((57, 130)).astype(np.float32)
    np.testing.assert_array_equal(ours.pack(host).reshape(published.device_size), published.pack(host))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpyreTensorLayout((3, 4), "complex64"), "dtype complex64 has no format on the device"),
        (lambda: SpyreTensorLayout((3, 4), [4], "float16", [0, 1]), "one stride per dimension"),
        (lambda: SpyreTensorLayout((3, 4), [4, 1], "float16", [0, 0]), "is no permutation"),
        (lambda: SpyreTensorLayout((3, 0), "float16"), "positive sizes"),
        (lambda: SpyreTensorLayout((3, 4), [-4, 1], "float16", [0, 1]), "positive sizes and strides"),
        (lambda: SpyreTensorLayout((3, 4.5), "float16"), r"integers as host_size, but got \(3, 4.5\)"),  # type: ignore[arg-type]
        (lambda: SpyreTensorLayout(5, "float16"), "a sequence of integers as host_size, but got 5"),  # type: ignore[call-overload]
        (lambda: SpyreTensorLayout([1, 64], "ab", DataFormats.SEN169_FP16), "integers as stride_map, but got 'ab'"),  # type: ignore[call-overload]
        (lambda: SpyreTensorLayout([3, 32], [32, 1], DataFormats.SEN169_FP16), "a last device dimension of 64 elements"),
        (lambda: SpyreTensorLayout([3, 64], [64], DataFormats.SEN169_FP16), "one stride per device dimension"),
        (lambda: SpyreTensorLayout([3, 64], [0, 1], DataFormats.SEN169_FP16), "positive or -1"),
        (
            lambda: SpyreTensorLayout([3, 64], [64, 1], DataFormats.SEN169_FP16, element_arrangement="ODD"),
            "unknown element arrangement 'ODD'",
        ),
        (lambda: SpyreTensorLayout([3, 64], [64, 1], DataFormats.SEN169_FP16).pack(np.zeros(300)), "108 of 300 elements"),
        (lambda: SpyreTensorLayout([3, 64], [63, 1], DataFormats.SEN169_FP16).pack(np.zeros((3, 50))), "stride 63 of device dimension 0"),
        (lambda: SpyreTensorLayout([3, 64], [64, 1], DataFormats.SEN169_FP16).unpack(np.zeros((64, 3)), (192,)), "device array of shape"),
        (
            lambda: SpyreTensorLayout([1, 32], [32, 1], DataFormats.IEEE_FP32, element_arrangement="DL16_TO_FP32").pack(np.zeros(32)),
            "a multiple of 64",
        ),
        (
            lambda: SpyreTensorLayout([1, 64], [64, 1], DataFormats.SEN169_FP16, element_arrangement="EXX2").pack(np.zeros(64)),
            "no order of host elements",
        ),
    ],
)
def test_wrong_fields_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_dtypes_of_torch_by_name() -> None:
    assert get_device_dtype("torch.bfloat16") is DataFormats.SEN169_FP16
    assert get_elem_in_stick("torch.float32") == 32
    assert get_device_dtype("torch.uint8") is DataFormats.SENUINT32
    assert SpyreTensorLayout((3,), np.dtype("int8")).elems_per_stick() == 128


def test_front_door() -> None:
    import ktir

    assert ktir.SpyreTensorLayout is SpyreTensorLayout
    assert ktir.DataFormats is DataFormats
