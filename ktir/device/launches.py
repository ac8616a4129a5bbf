"""Launches from generated code whose arguments are tensors on the device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ktir.device.operators.kernels import is_ours
from ktir.device.tensors.storage import maker, on_card
from ktir.lowering.inductor.running import direct
from ktir.runtime import cache
from ktir.runtime.kernel import Kernel
from ktir.runtime.prepared import Prepared

_handle = torch.Tensor.data_ptr
_BATCH = 8
"""Results of a program that are made at once."""


class kernel:
    """What generated code calls; see `ktir.runtime.cache.kernel`."""

    def __init__(self, key: str, *, frozen_weights: bool = False, strict: bool = False) -> None:
        self.key = key
        self._strict = strict
        self._last: weakref.ref[Kernel] | None = None

    def __call__(self, *tensors: Any) -> None:
        direct.launched(self, tensors)
        self.launch(tensors)  # what surrounds generated code counts the writes to inputs: only it knows what nobody has seen before

    def launch(self, tensors: Sequence[Any], refused: list[Exception] | None = None) -> tuple[Kernel, Sequence[int]]:
        """Launch; what was launched, and the numbers of those that it has written. refused: see `Kernel`."""
        loaded = cache.load(self.key)
        new = self._last is None or self._last() is not loaded
        cache.watch(self.key, tensors if new else ())
        if new:
            self._last = weakref.ref(loaded)
        loaded(*(on_card(t) if is_ours(t) else t for t in tensors), strict=self._strict, refused=refused)
        return loaded, loaded.written

    def direct(self, tensors: Sequence[Any], made: Collection[int]) -> direct.Launch | None:
        """See `ktir.lowering.inductor.running.direct.Launcher`."""
        return _Steady(self, made) if all(map(is_ours, tensors)) else None

    def maker(self, made: direct.Buffer, parts: direct.Parts) -> Callable[[], Sequence[torch.Tensor]]:
        """See `ktir.lowering.inductor.running.direct.Launcher`."""
        size, stride, dtype, device = made
        return maker(size, stride, dtype, device.index, _BATCH, parts)


class _Steady:
    """Launches on tensors of the same sizes, strides, types and devices. What is prepared for them goes with the program, not with this.

    A tensor's handle says which allocation it is of; there is none for a place inside of one.
    """

    def __init__(self, launcher: kernel, made: Collection[int]) -> None:
        self._launcher = launcher
        self._key = launcher.key
        self._made = made
        self._written: Sequence[int] = ()
        """Numbers of the tensors that are written, those that are made for a launch aside."""
        self._owner = weakref.ref(cache.owner.get() or self)
        self._kernel: Callable[[], Kernel | None] = _none
        self._prepared: Callable[[], Prepared | None] = _none

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        loaded, prepared = self._kernel(), self._prepared()
        if loaded is None or prepared is None or not cache.use(self._key, loaded):
            self._plainly(tensors)
            return
        handles = [*map(_handle, tensors)]
        if self._written:  # now that the host's caches have the tensors, which they have not after the launch
            torch.autograd.graph.increment_version([tensors[k] for k in self._written])
        refused: list[Exception] = []
        if not loaded.again(prepared, handles, refused):
            self._plainly(tensors, refused)

    def _plainly(self, tensors: Sequence[torch.Tensor], refused: list[Exception] | None = None) -> None:
        token = cache.owner.set(self._owner())
        try:
            loaded, written = self._launcher.launch(tensors, refused)
        finally:
            cache.owner.reset(token)
        self._written = [k for k in written if k not in self._made]
        if self._written:
            torch.autograd.graph.increment_version([tensors[k] for k in self._written])
        if (prepared := loaded.prepared([on_card(t) for t in tensors], self._made)) is not None:
            self._kernel, self._prepared = weakref.ref(loaded), weakref.ref(prepared)


def _none() -> None:
    """What refers to nothing."""
