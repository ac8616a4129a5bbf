"""Halves as PyTorch widens them: by an instruction of the host that NumPy does not use. Weights that wait as halves are widened at each
launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch

from ktir.arithmetic import floats


class _Dense(threading.local):
    """Memory of a thread for halves that lie one after the other, as PyTorch wants them, by shape: an array and a tensor on it."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], tuple[floats.F16, torch.Tensor]] = {}

    def __call__(self, shape: tuple[int, ...]) -> tuple[floats.F16, torch.Tensor]:
        found = self.known.get(shape)
        if found is None:
            if len(self.known) > _SHAPES:
                self.known.clear()
            memory = np.empty(shape, np.float16)
            found = self.known[shape] = memory, _tensor(memory)
        return found


_SHAPES = 64
_dense = _Dense()


def install() -> None:
    """Let launches widen halves so, where the host has the instruction."""
    if torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        floats.install(by_torch)


def by_torch(values: floats.F32) -> Callable[[floats.F16], None]:
    """See `ktir.arithmetic.floats.widening`."""
    target, shape, by_numpy, watchers = _tensor(values), values.shape, floats.by_numpy(values), torch._C._len_torch_dispatch_stack

    def widened(halves: floats.F16) -> None:
        if watchers():  # of operators, who are not to see this one
            by_numpy(halves)
            return
        dense, source = _dense(shape)
        np.copyto(dense, halves)
        target.copy_(source)

    return widened


def _tensor(memory: np.ndarray) -> torch.Tensor:
    with torch.inference_mode(False):  # what is made in inference mode cannot be written in others
        return torch.from_numpy(memory)
