"""Halves that wait on the device are widened by PyTorch's instructions: to the values that NumPy's conversion gives, and unseen."""

import threading

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ktir.device.tensors.halves import by_torch

FINITE = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = FINITE[np.isfinite(FINITE)]


class Refused(TorchDispatchMode):
    """No operator may be called."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise AssertionError(func)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad, Refused])
def test_all_finite_halves(mode: type) -> None:
    values = np.empty((31, 1024), np.float32)
    with torch.inference_mode():
        widened = by_torch(values)
    with mode():
        for window in (FINITE[: 31 * 1024], FINITE[31 * 1024 :], FINITE[::-1], np.repeat(FINITE, 3)[1::3]):
            halves = np.lib.stride_tricks.as_strided(window, (31, 1024), (1024 * window.strides[0], window.strides[0]))
            widened(halves)
            np.testing.assert_array_equal(values.view(np.uint32), halves.astype(np.float32).view(np.uint32))


def test_threads() -> None:
    """Each has memory of its own for what it widens."""
    failed: list[int] = []

    def work(k: int) -> None:
        values = np.empty(8192, np.float32)
        widened, halves = by_torch(values), np.roll(FINITE, 977 * k)[:8192]
        for _ in range(50):
            widened(halves)
            if not np.array_equal(values, halves.astype(np.float32)):
                failed.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
