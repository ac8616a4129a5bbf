"""What a kernel writes is memory of its own, wherever it runs: else engines would differ in what is read behind a write."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from ktir import lang
from ktir.diagnostics import KtirError

PLACES = ["numpy", "executor", "chip"]


@lang.kernel
def moved(x, y):
    for i in lang.range(y.shape[0] - 1):
        y[i + 1] = x[i]


@lang.kernel
def added(x, y, z):
    z[...] = x[...] + y[...]


def rows(n: int) -> np.ndarray:
    return np.arange(n * 64, dtype=np.float32).reshape(n, 64)


def spread() -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (6, 64), (0, 4))


@pytest.mark.parametrize("on", PLACES)
def test_memory_of_two_arguments_is_not_written(on: Any) -> None:
    whole = rows(7)
    tensor = torch.from_numpy(rows(7))
    pairs = [
        (whole, whole),
        (whole[:-1], whole[1:]),
        (whole[:, :40], whole[:, 20:60]),
        (whole[::-1], whole),
        (tensor, tensor),
        (tensor[:6], tensor.numpy()[1:]),
    ]
    for x, y in pairs:
        before = whole.copy()
        where = rf"{re.escape(__file__)}:\d+:\d+: error: arguments 'x' and 'y' share memory, and the kernel writes 'y'"
        with pytest.raises(KtirError, match=where):
            moved[1].using(on=on)(x, y)
        assert np.array_equal(whole, before)


@pytest.mark.parametrize("on", PLACES)
def test_memory_that_is_only_read_may_be_that_of_two_arguments(on: Any) -> None:
    x, z = rows(6), np.zeros((6, 64), np.float32)
    added.using(on=on)(x, x, z)
    assert np.array_equal(z, x + x)
    added.using(on=on)(x[1:], x[:-1], z[1:])
    assert np.array_equal(z[1:], x[1:] + x[:-1])


@pytest.mark.parametrize("on", PLACES)
def test_parts_that_lie_between_each_other_are_no_common_memory(on: Any) -> None:
    both = rows(12)
    moved[1].using(on=on)(both[::2], both[1::2])
    assert np.array_equal(both[3::2], rows(12)[:-2:2])
    wide = np.concatenate([rows(6), rows(6) + 1], 1)
    moved[1].using(on=on)(wide[:, :64], wide[:, 64:])
    assert np.array_equal(wide[1:, 64:], rows(6)[:-1])


@pytest.mark.parametrize("on", PLACES)
def test_each_element_that_is_written_is_one_that_may_be(on: Any) -> None:
    x = rows(6)
    fixed = np.zeros((6, 64), np.float32)
    fixed.flags.writeable = False
    for y, words in ((fixed, "which is read-only memory"), (spread(), "of which several elements are the same memory")):
        with pytest.raises(KtirError, match=f"the kernel writes 'y', {words}"):
            moved[1].using(on=on)(x, y)
    moved[1].using(on=on)(spread(), x)
    moved[1].using(on=on)(fixed, x.T.copy().T)


@lang.kernel
def doubled(x, y):
    y[...] = x[...] * 2


@pytest.mark.parametrize("on", PLACES)
@pytest.mark.parametrize("grid", [None, 1])
def test_arrays_without_dims(on: Any, grid: Any) -> None:
    y = np.zeros((), np.float32)
    doubled.using(on=on, grid=grid)(np.array(3.0, np.float32), y)
    assert y == 6
