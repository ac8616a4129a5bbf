"""What stands for the hardware of cards: how much memory there is, and whether anything is computed."""

from __future__ import annotations

import logging
from array import array

import numpy as np
import pytest
from logical_programs import linear

from ktir.assembly import parse_module
from ktir.context import context
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime import notices
from ktir.runtime.device import DeviceTensor
from ktir.runtime.executable import Executable
from ktir.runtime.memory.allocation import Allocation
from ktir.runtime.memory.card import SEGMENT_BYTES, Card, DeviceOutOfMemory
from ktir.runtime.memory.hardware import Hardware, hardware
from ktir.runtime.memory.view import View

MOCK = {"FLEX_DEVICE": "MOCK"}


def put(card: Card, array: np.ndarray) -> DeviceTensor:
    """An array on a card."""
    strides = tuple(s // array.itemsize for s in array.strides)
    tensor = DeviceTensor(Allocation(card, array.nbytes), View(array.dtype.name, 0, array.shape, strides))
    tensor.array(write=True)[...] = array
    return tensor


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Hardware()),
        ({"FLEX_COMPUTE": "NULL", "FLEX_MOCK_DEVICE_MEMORY_SIZE": "5"}, Hardware()),
        (MOCK, Hardware(mock=True)),
        (MOCK | {"FLEX_COMPUTE": "SENULATOR"}, Hardware(mock=True)),
        (MOCK | {"FLEX_COMPUTE": "NULL"}, Hardware(mock=True, computes=False)),
        (MOCK | {"FLEX_MOCK_DEVICE_MEMORY_SIZE": "5368709120"}, Hardware(mock=True, tensor_bytes=5 << 30)),
        (MOCK | {"FLEX_COMPUTE": "SENTIENT"}, "FLEX_COMPUTE must be SENULATOR or NULL, or not set, .* but got 'SENTIENT'"),
        (MOCK | {"FLEX_MOCK_DEVICE_MEMORY_SIZE": "0"}, "FLEX_MOCK_DEVICE_MEMORY_SIZE must be a number of bytes, but got '0'"),
        (MOCK | {"FLEX_MOCK_DEVICE_MEMORY_SIZE": "5G"}, "FLEX_MOCK_DEVICE_MEMORY_SIZE must be a number of bytes, but got '5G'"),
        ({"FLEX_DEVICE": "VF"}, "FLEX_DEVICE must be MOCK"),
    ],
)
def test_environment(environment: dict[str, str], expected: Hardware | str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLEX_DEVICE", "FLEX_COMPUTE", "FLEX_MOCK_DEVICE_MEMORY_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, Hardware):
        assert hardware() == expected
    else:
        with pytest.raises(RuntimeError, match=expected):
            hardware()


@pytest.mark.parametrize("most", [1 << 20, 5 << 30, (1 << 34) + 256, 3 << 34, 200 << 30])
def test_memory_for_tensors(most: int) -> None:
    card = Card(hardware=Hardware(tensor_bytes=most))
    assert card.capacity == min(most, 7 * SEGMENT_BYTES)
    left = card.capacity
    while left:
        left -= (size := min(left, SEGMENT_BYTES))
        card.take(size)
    with pytest.raises(DeviceOutOfMemory):
        card.take(128)


@pytest.mark.parametrize("computes", [True, False])
def test_nothing_is_computed(computes: bool, caplog: pytest.LogCaptureFixture) -> None:
    notices.forget()
    with context(), ir.Location.unknown():
        run = Executable(read(compile_logical(parse_module(linear(40, 96, 70, transposed=True).text()), cores=4)))
    card = Card(segment_bytes=1 << 24, hardware=Hardware(computes=computes))
    steps: list[str] = []
    card.observers.append(lambda step: steps.append(step.kind))
    tensors = [put(card, array) for array in linear(40, 96, 70, transposed=True).arrays()]
    with caplog.at_level(logging.WARNING):
        run(*tensors)
        run(*tensors)
    first = tensors[3].array().copy()
    tensors[3].array(write=True)[...] = 7
    prepared = run.prepared(tensors)
    assert prepared
    assert prepared.launch(array("q", [t.allocation.handle for t in tensors]))
    assert [np.any(first), np.any(tensors[3].array())] == [computes, computes]
    assert steps.count("Compute") == 3
    assert caplog.text.count("programs are not computed, what they write is 0: FLEX_COMPUTE is NULL") == (not computes)
