"""Launches from generated code whose arguments are tensors on the device."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ktir.device.operators.kernels import is_ours
from ktir.device.tensors.storage import give_memory, in_torchs_words, maker, on_card
from ktir.lowering.inductor.running import direct
from ktir.lowering.inductor.running.overlaps import Unseen, meeting, reach
from ktir.runtime import cache
from ktir.runtime.kernel import Kernel
from ktir.runtime.prepared import Prepared, taking

_handle = torch.Tensor.data_ptr
_increment_version: Callable[[Sequence[torch.Tensor]], None] = torch._C._increment_version  # type: ignore[attr-defined]
"""`torch.autograd.graph.increment_version` without its look at what it is given, which takes longer."""
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
        """Launch; what was launched, and the numbers of those that it has written. refused: see `Kernel`. Raises torch.OutOfMemoryError."""
        loaded = cache.load(self.key)
        new = self._last is None or self._last() is not loaded
        cache.watch(self.key, tensors if new else ())
        if new:
            self._last = weakref.ref(loaded)
        with in_torchs_words():
            loaded(*(on_card(t) if is_ours(t) else t for t in tensors), strict=self._strict, refused=refused)
        return loaded, loaded.written

    def direct(self, tensors: Sequence[torch.Tensor], given: Sequence[int], made: Sequence[int]) -> direct.Launch | None:
        """See `ktir.lowering.inductor.running.direct.Launcher`."""
        once = all(given.count(k) == 1 for k in made)
        return _Steady(self, given, made) if once and all(is_ours(tensors[k]) for k in given) else None

    def maker(self, made: direct.Buffer, parts: direct.Parts) -> Callable[[], tuple[Sequence[torch.Tensor], Any]]:
        """See `ktir.lowering.inductor.running.direct.Launcher`."""
        size, stride, dtype, device = made
        return maker(size, stride, dtype, device.index, _BATCH, parts)


class _Steady:
    """Launches on tensors of the same sizes, strides, types and devices. What is prepared for them goes with the program, not with this.

    A tensor's handle says which allocation it is of; there is none for a place inside of one.
    """

    def __init__(self, launcher: kernel, given: Sequence[int], made: Sequence[int]) -> None:
        """given, made: see `ktir.lowering.inductor.running.direct.Launcher`."""
        self._launcher = launcher
        self._places = given
        self._given = taking(given)
        self._others = taking([k for k in given if k not in made])
        """Of the tensors of a call, those that are there before."""
        self._different = len({k for k in given if k not in made})
        """How many these are."""
        self._made = [given.index(k) for k in made]
        """Which of those that are given are made for the launch."""
        self._written: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        """Of the tensors of a call, those that are written and were there before; None where none are."""
        self._owner = weakref.ref(cache.owner.get() or self)
        self._kernel: Callable[[], Kernel | None] = _none
        self._prepared: Callable[[], Prepared | None] = _none

    def __call__(self, tensors: Sequence[torch.Tensor], holders: Sequence[Any]) -> None:
        loaded, prepared = self._kernel(), self._prepared()
        if loaded is None or prepared is None:
            self._plainly(tensors, holders)
            return
        loaded.used = next(cache.uses)
        handles = array("q", [*map(_handle, self._others(tensors))])
        if self._written is not None and len(set(handles)) < self._different:
            self._check(tensors, self._written(tensors))
        if self._written is not None:  # now that the host's caches have the tensors, which they have not after the launch
            _increment_version(self._written(tensors))
        refused: list[Exception] = []
        if not loaded.again(prepared, handles, holders, refused):
            self._plainly(tensors, holders, refused)

    def _check(self, tensors: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        """Raises Unseen where what is written meets others: a graph that knows of it is none of one launch on its inputs."""
        names = {id(t) for t in written}
        there = {id(t): (_handle(t), _handle(t) + reach(t), id(t)) for t in self._others(tensors)}
        if any(not names.isdisjoint(pair) for pair in meeting([*there.values()])):
            raise Unseen

    def _plainly(self, all_: Sequence[torch.Tensor], holders: Sequence[Any], refused: list[Exception] | None = None) -> None:
        tensors = self._given(all_)
        if there := [tensors[k] for k in cache.load(self._launcher.key).written if k not in self._made]:
            self._check(all_, there)
        for k, holder in zip(self._made, holders, strict=True):
            if not hasattr(holder, "allocation"):  # a launch that was refused has given it some
                give_memory(holder, tensors[k].device.index, tensors[k].untyped_storage().nbytes())
        token = cache.owner.set(self._owner())
        try:
            loaded, written = self._launcher.launch(tensors, refused)
        finally:
            cache.owner.reset(token)
        others = [self._places[k] for k in written if k not in self._made]
        self._written = taking(others) if others else None
        if self._written is not None:
            _increment_version(self._written(all_))
        if (prepared := loaded.prepared([on_card(t) for t in tensors], self._made)) is not None:
            self._kernel, self._prepared = weakref.ref(loaded), weakref.ref(prepared)


def _none() -> None:
    """What refers to nothing."""
