"""Calls of a compiled graph that is one program, without the code around the program.

What stands between Dynamo and a launch, which is PyTorch's and what Inductor has generated, does the same at each call of a graph of given
sizes. So two calls are watched: where both have done nothing but make the same buffers, launch one program on them and on inputs, and give
some of these back, later ones do just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch
from torch._C._dynamo import guards
from torch.utils._python_dispatch import TorchDispatchMode

from ktir.lowering.inductor.running.overlaps import Unseen
from ktir.runtime.prepared import taking

_CALLS = 3
"""Until it is known: at the first one PyTorch checks what it calls, the others are watched."""

_reinterpret: Any = vars(guards)["_reinterpret_tensor"]
"""Elements of a tensor, as generated code shows them."""

Launch = Callable[[Sequence[torch.Tensor], Sequence[Any]], None]
"""Of the tensors of a call, and what will hold the memory of those that are made for it. Raises Unseen."""
Parts = Callable[[torch.Tensor], Sequence[torch.Tensor]]


class Launcher(Protocol):
    """What generated code calls."""

    def direct(self, tensors: Sequence[torch.Tensor], given: Sequence[int], made: Sequence[int]) -> Launch | None:
        """The launch itself, for tensors of the same sizes, strides, types and devices; None where it has no shorter way. given: which of
        a call's tensors it takes, by number. made: which of these are made for it, which nobody has seen before.
        """
        ...

    def maker(self, made: Buffer, parts: Parts) -> Callable[[], tuple[Sequence[torch.Tensor], Any]]:
        """What makes new tensors without memory, each with its parts, and what will hold that."""
        ...


class Buffer(NamedTuple):
    """A tensor that is made for a call."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Part(NamedTuple):
    """A result that shows elements of a buffer: of the tensors of a call by number. `first`: the number of the first result that it is."""

    first: int
    of: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Done(NamedTuple):
    """What a call has done. Its tensors have numbers: the inputs, the buffers, the constants."""

    launcher: Launcher
    inputs: int
    buffers: tuple[Buffer, ...]
    constants: tuple[torch.Tensor, ...]
    given: tuple[int, ...]
    results: tuple[int | Part, ...]
    kind: type

    def is_as(self, other: Done) -> bool:
        """Whether another call has done the same."""
        rest = [(d.inputs, d.buffers, d.given, d.results, d.kind, [id(c) for c in d.constants]) for d in (self, other)]
        return self.launcher is other.launcher and rest[0] == rest[1]

    def again(self, tensors: Sequence[torch.Tensor]) -> Callable[..., Any] | None:
        """What does it again; `tensors` are those of a call. None where there is no shorter way."""
        buffers = range(self.inputs, self.inputs + len(self.buffers))
        made: list[int | Part] = []  # what stands behind inputs and constants: each buffer, and its parts
        makers = []
        for number, buffer in zip(buffers, self.buffers, strict=True):
            parts = list(dict.fromkeys(r for r in self.results if isinstance(r, Part) and r.of == number))
            makers.append(self.launcher.maker(buffer, _parts(parts)))
            made += [number, *parts]
        inputs, constants = [*range(self.inputs)], [*range(buffers.stop, len(tensors))]
        place = {what: at for at, what in enumerate([*inputs, *constants, *made])}
        placed = [tensors[k] if isinstance(k, int) else tensors[k.of] for k in place]
        launch = self.launcher.direct(placed, [place[k] for k in self.given], [place[k] for k in buffers])
        if launch is None:
            return None
        shown, own, kind = taking([place[r] for r in self.results]), self.constants, self.kind

        def call(*inputs: torch.Tensor) -> Any:
            tensors, holders = [*inputs, *own], []
            for make in makers:
                made, holder = make()
                tensors += made
                holders.append(holder)
            launch(tensors, holders)
            return kind(shown(tensors))

        return call


def _parts(parts: Sequence[Part]) -> Parts:
    return lambda made: [_reinterpret(made, size, stride, offset) for _, _, size, stride, offset in parts]


_watching: ContextVar[_Watch | None] = ContextVar("ktir_direct", default=None)


def launched(launcher: Launcher, tensors: Sequence[Any]) -> None:
    """Called by a launcher for each launch from generated code."""
    watch = _watching.get()
    if watch is not None:
        watch.launches.append((launcher, tensors))


class _Watch(TorchDispatchMode):
    """What happens in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []
        self.launches: list[tuple[Launcher, Sequence[Any]]] = []
        self.other = False
        """Whether there was an operator that does anything else."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.empty_strided.default:
            self.made.append(found)
        elif func is torch.ops.aten.detach.default and self.made and args[0] is self.made[-1]:
            self.made[-1] = found  # which the call of `empty_strided` gives
        else:
            self.other = True
        return found

    def done(self, inputs: Sequence[Any], results: Any) -> tuple[Done, Sequence[torch.Tensor]] | None:
        """What a call has done, and its tensors; None where that is not all."""
        own = [*inputs, *self.made]
        if self.other or len(self.launches) != 1 or type(results) not in (list, tuple):
            return None
        ((launcher, given),) = self.launches
        if not all(isinstance(t, torch.Tensor) for t in (*own, *given, *results)):
            return None
        known, memories = {id(t) for t in own}, {t.untyped_storage()._cdata for t in own}
        constants = [t for t in given if id(t) not in known]
        if any(t.untyped_storage()._cdata in memories for t in constants):  # an input as another view
            return None
        tensors = [*own, *constants]
        numbers = {id(t): k for k, t in reversed([*enumerate(tensors)])}
        first = {id(r): k for k, r in reversed([*enumerate(results)])}
        shown = [numbers.get(id(r)) if id(r) in numbers else self._part(first[id(r)], r, len(inputs)) for r in results]
        if any(s is None for s in shown):
            return None
        buffers = tuple(Buffer(tuple(t.shape), t.stride(), t.dtype, t.device) for t in self.made)
        arguments = tuple(numbers[id(t)] for t in given)
        return Done(
            launcher, len(inputs), buffers, tuple(constants), arguments, tuple(s for s in shown if s is not None), type(results)
        ), tensors

    def _part(self, first: int, result: torch.Tensor, inputs: int) -> Part | None:
        memory = result.untyped_storage()._cdata
        for k, made in enumerate(self.made):
            if made.untyped_storage()._cdata == memory and made.dtype == result.dtype:
                return Part(first, inputs + k, tuple(result.shape), result.stride(), int(result.storage_offset()))
        return None


class Direct:
    """A compiled graph, called with tensors of the same sizes, strides, types and devices each time."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self.compiled = compiled
        self.again: Callable[..., Any] | None = None
        """What calls are, once that is known."""
        self._seen: list[Done] = []
        self._left = _CALLS
        self._lock = Lock()
        """Of the call that is watched, or the first one."""

    def __call__(self, *inputs: Any) -> Any:
        if self.again is not None:
            with suppress(Unseen):  # which is a matter of who calls
                return self.again(*inputs)
            return self.compiled(*inputs)
        if not self._left or not self._lock.acquire(blocking=False):
            return self.compiled(*inputs)
        try:
            return self._watched(inputs) if self._left else self.compiled(*inputs)
        finally:
            self._lock.release()

    def _watched(self, inputs: Sequence[Any]) -> Any:
        if len(set(map(id, inputs))) < len(inputs):  # which of two equal ones a launch takes cannot be seen
            return self.compiled(*inputs)
        self._left -= 1
        if self._left == _CALLS - 1:
            return self.compiled(*inputs)
        watch = _Watch()
        token = _watching.set(watch)
        try:
            with watch:
                results = self.compiled(*inputs)
        finally:
            _watching.reset(token)
        if (found := watch.done(inputs, results)) is None:
            self._left = 0
            return results
        done, tensors = found
        self._seen.append(done)
        if not self._left:
            if all(done.is_as(before) for before in self._seen):
                self.again = done.again(tensors)
            self._seen.clear()
        return results
