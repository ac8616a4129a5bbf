"""Launches from generated code whose arguments are tensors on the device."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import torch

from ktir.device.operators.kernels import is_ours
from ktir.device.tensors.storage import empty_strided, on_card
from ktir.lowering.inductor.running import direct
from ktir.runtime import cache
from ktir.runtime.device import DeviceTensor
from ktir.runtime.kernel import Kernel
from ktir.runtime.memory.allocation import held


class kernel:
    """What generated code calls; see `ktir.runtime.cache.kernel`."""

    def __init__(self, key: str, *, frozen_weights: bool = False, strict: bool = False) -> None:
        self._key = key
        self._strict = strict
        self._last: weakref.ref[Kernel] | None = None

    def __call__(self, *tensors: Any) -> None:
        direct.launched(self, tensors)
        written = self._launch(tensors, [on_card(t) if is_ours(t) else t for t in tensors])
        torch.autograd.graph.increment_version([t for k in written if is_ours(t := tensors[k])])

    def _launch(self, tensors: Sequence[Any], operands: Sequence[Any]) -> Sequence[int]:
        """Launch; the numbers of those that were written."""
        loaded = cache.load(self._key)
        new = self._last is None or self._last() is not loaded
        cache.watch(self._key, tensors if new else ())
        if new:
            self._last = weakref.ref(loaded)
        loaded(*operands, strict=self._strict)
        return loaded.written

    def direct(self, tensors: Sequence[Any], made: Collection[int]) -> direct.Launch | None:
        """See `ktir.lowering.inductor.running.direct.Launcher`. A tensor's handle says which allocation it is of, where it begins there."""
        if not all(map(is_ours, tensors)):
            return None
        views = [on_card(t).view for t in tensors]

        def launch(tensors: Sequence[torch.Tensor]) -> None:
            operands = []
            for tensor, view in zip(tensors, views, strict=True):
                allocation = None if view.offset or tensor.is_neg() else held(tensor.data_ptr())
                operands.append(on_card(tensor) if allocation is None else DeviceTensor(allocation, view))
            written = [tensors[k] for k in self._launch(tensors, operands) if k not in made]
            if written:
                torch.autograd.graph.increment_version(written)

        return launch

    def buffer(self, made: direct.Buffer) -> torch.Tensor:
        """See `ktir.lowering.inductor.running.direct.Launcher`."""
        size, stride, dtype, device = made
        return empty_strided(size, stride, dtype, device.index)
