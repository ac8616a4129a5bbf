"""Tensors declared to lie otherwise than their elements follow each other: what `ktir.execute` and the levels make of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.checking import check_levels
from ktir.diagnostics import KtirError

PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "transposed": (lambda x: x.t() * 1.5, (65, 33)),
    "permuted": (lambda x: x.permute(2, 0, 1) + 1, (3, 5, 64)),
    "channels last": (lambda x: x.contiguous(memory_format=torch.channels_last) * 2, (2, 3, 4, 5)),
    "dense": (lambda x: x * 2, (7, 65)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("lies", ["dense", "as declared", "reversed"])
def test_execute(name: str, lies: str) -> None:
    """Arrays of the declared shape hold the tensor, however they lie; each element where PyTorch has it."""
    function, shape = PROGRAMS[name]
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).half() % 101
    wanted = function(x)
    y = np.zeros(tuple(wanted.shape), np.float16)
    if lies == "as declared":
        y = torch.zeros_like(wanted).numpy()  # which keeps the strides
    elif lies == "reversed" and name != "dense":
        y = np.zeros(tuple(wanted.shape)[::-1], np.float16).T
    ktir.execute(ktir.capture(function, x), None, [x.numpy(), y])
    np.testing.assert_array_equal(y, wanted.numpy())


@pytest.mark.parametrize("name", PROGRAMS)
def test_levels(name: str) -> None:
    """Each level, and the machine, which has always taken tensors."""
    function, shape = PROGRAMS[name]
    x = torch.arange(torch.Size(shape).numel()).reshape(shape).half() % 101
    wanted = function(x)
    for level in check_levels(ktir.capture(function, x), [x.numpy(), np.zeros(tuple(wanted.shape), np.float16)]):
        np.testing.assert_array_equal(level.arrays[1], wanted.numpy(), err_msg=level.name)


def test_memory() -> None:
    """An array of one dim is memory."""
    function, shape = PROGRAMS["transposed"]
    x = torch.randn(shape).half()
    y = np.zeros(x.numel(), np.float16)
    ktir.execute(ktir.capture(function, x), None, [x.numpy(), y])
    np.testing.assert_array_equal(y.reshape(shape), (x * 1.5).numpy())


def test_cannot_be_written() -> None:
    function, shape = PROGRAMS["transposed"]
    x, y = np.ones(shape, np.float16), np.zeros(shape[::-1], np.float16)
    y.flags.writeable = False
    with pytest.raises(KtirError, match=r"'buf0'.*writ"):
        ktir.execute(ktir.capture(function, torch.from_numpy(x)), None, [x, y])
    assert not y.any()
