"""A compiled graph with PyTorch behind it: where no engine of ours has a result, PyTorch computes it from the same inputs."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor.running import writes
from ktir.lowering.inductor.running.direct import Direct
from ktir.lowering.inductor.running.fallback import in_torch
from ktir.lowering.inductor.running.origins import TORCH
from ktir.lowering.inductor.running.overlaps import Overlooked, Unseen
from ktir.runtime import cache, store
from ktir.runtime.kernel import OF_DATA, OURS

THEIRS = "PyTorch's own tracing refuses the graph; every backend that uses it says the same"
MARKED = "an argument is a view with its sign or its zeros noted apart from its memory; `clone()` makes it a tensor of its own"
SHARED = "an input that is written shares elements with another one, which PyTorch's tracing has not seen"
_OWN = str(Path(__file__).parents[3]) + os.sep

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, int, float))
_undo: ContextVar[list[tuple[torch.Tensor, torch.Tensor]] | None] = ContextVar("ktir_undo", default=None)


def remember(*tensors: torch.Tensor) -> None:
    """Called by generated code of several programs and calls before the first one: the inputs that it will write to."""
    kept = _undo.get()
    if kept is not None:
        kept += [(t, t.clone()) for t in tensors if all(t is not known for known, _ in kept)]


class Guarded:
    """Calls what was compiled; where that fails and PyTorch does not, PyTorch's result, and a warning. What fails in PyTorch too is the
    data's own matter. `strict`: errors are errors.
    """

    def __init__(self, compiled: Callable[..., Any], graph: fx.GraphModule, *, strict: bool) -> None:
        self.compiled = compiled
        self.graph = graph
        self.strict = strict
        self.otherwise: Callable[..., Any] | None = None
        self._proven = False
        """Whether a call has come to its end: what PyTorch puts around a graph may fail behind its writes, from the first call on."""
        self._again: Callable[..., Any] | None = None
        """What calls are, once that is known; see `Direct`. Dynamo calls with inputs of the same types."""
        self.overlooked = Overlooked(graph, writes.written(graph))

    def serialize(self) -> Any:
        """What `aot_compile` asks for where what it gave is saved."""
        raise KtirError("what ktir compiled is saved by torch.compiler.save_cache_artifacts, or by ktir.standalone_compile on the host")

    def __call__(self, *inputs: Any) -> Any:
        if self._again is not None:
            try:
                return self._again(*inputs)
            except Unseen:
                return self._run(inputs)
            except Exception as error:  # of a launch, which then has written nothing
                self._again = None
                return self._failed(error, inputs)
        if others := not _PLAIN.issuperset(map(type, inputs)):
            inputs = tuple(map(_as_plain, inputs))
        token = cache.owner.set(self)
        try:
            return self._run(inputs)
        finally:
            cache.owner.reset(token)
            if not (others or self.otherwise or self.overlooked.shared) and isinstance(self.compiled, Direct):
                self._again = self.compiled.again

    def _run(self, inputs: Sequence[Any]) -> Any:
        if self.otherwise:
            return self.otherwise(*inputs)
        if self.overlooked.targets and self.overlooked.among(inputs):
            if self.strict:
                raise Unsupported(SHARED)
            return in_torch(self.graph, Unsupported(SHARED))(*inputs)
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        token = _undo.set(None if self.strict else kept)
        if not self._proven:
            kept += [(t, t.clone()) for t in _to_keep(inputs)]
        try:
            result = self.compiled(*inputs)
            self._proven = True
            return result
        except Exception as error:
            _restore(kept)
            return self._failed(error, inputs)
        finally:
            _undo.reset(token)

    def _failed(self, error: Exception, inputs: Sequence[Any]) -> Any:
        """What there is in place of a result that compiled code has not; raises where there is nothing, or the card has no room."""
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        return self._refused(error, inputs) if self.strict else self._otherwise(error, inputs)

    def _otherwise(self, error: Exception, inputs: Sequence[Any]) -> Any:
        if any(map(_is_marked, inputs)):
            return in_torch(self.graph, KtirError(MARKED))(*inputs)
        otherwise = in_torch(self.graph, error, written)
        try:
            result = otherwise(*inputs)
        except Exception as theirs:
            raise _of_data(theirs, error) from None
        self.otherwise = otherwise
        return result

    def _refused(self, error: Exception, inputs: Sequence[Any]) -> Any:
        if isinstance(error, OF_DATA):
            try:
                in_torch(self.graph, error)(*(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs))
            except Exception as theirs:
                raise _of_data(theirs, error) from None
        elif any(map(_is_marked, inputs)):
            raise KtirError(MARKED) from None
        raise error


def _of_data(theirs: Exception, ours: Exception) -> Exception:
    """What PyTorch says of data that it refuses, too, with the place in the user's source."""
    if not isinstance(ours, OF_DATA):
        return ours
    if ours.location and not theirs.args[1:]:
        theirs.args = (f"{ours.location}: error: {theirs}",)
    return theirs.with_traceback(None)


def _is_marked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_neg() or value._is_zerotensor())


def _as_plain(value: Any) -> Any:
    """A tensor of a class that adds no behaviour below PyTorch's functions as one of PyTorch's own: launches see memory alone."""
    of_torch, own = (getattr(c, "__torch_dispatch__", None) for c in (torch.Tensor, type(value)))
    theirs = isinstance(value, torch.Tensor) and own is of_torch
    return value.as_subclass(torch.Tensor) if theirs and type(value) not in _PLAIN else value


def _to_keep(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Inputs that have a place for each element, where some of all share their memory: what PyTorch puts around such a graph may fail."""
    tensors = [t for t in inputs if isinstance(t, torch.Tensor) and t.layout == torch.strided and not _is_marked(t)]
    if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
        return []
    return [t for t in tensors if not any(n > 1 and not s for n, s in zip(t.shape, t.stride(), strict=True))]


def _restore(kept: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.inference_mode():  # in which tensors of either kind can be written
        for tensor, content in kept:
            tensor.copy_(content)


def written(graph: fx.GraphModule, error: Exception) -> str:
    """Write a graph to a file; a note that says where, and whose fault an error is."""
    path = store.new_reproducer() / "graph.py"
    path.write_text(graph.print_readable(print_output=False))
    return f"{THEIRS if of_torch(error) else OURS}; the graph is in {path}"


def of_torch(error: BaseException) -> bool:
    """Whether PyTorch raised an error before anything of ours saw the graph: its frames are the last ones, and ours called them."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    first = next((k for k, file in enumerate(files) if file.startswith(TORCH)), len(files))
    return first < len(files) and not any(file.startswith(_OWN) for file in files[first:])
