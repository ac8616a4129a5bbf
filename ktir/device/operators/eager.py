"""Operators outside of compiled graphs: each is compiled like a graph of one node, and kept by what its program depends on."""

from __future__ import annotations

import logging
import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ktir import config
from ktir.diagnostics import KtirError, OutOfRange

_MOST = 1024
"""Programs that are kept; the ones used longest ago go."""
_TRIES = 4
"""Times that an operator is compiled for the same types of operands in vain before it is not tried any more."""
ON_CHIP = {torch.float16, torch.float32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
"""Types of operands that programs may have."""

_NUMBERS = (torch.float64, torch.int64, torch.bool)
_TRACING = logging.getLogger("torch._subclasses.fake_tensor")

Program = Callable[..., Any]


class NoProgram(Exception):
    """An operator has no program for these operands; the text says why, if there is more to say."""


_programs: OrderedDict[Hashable, Program | NoProgram] = OrderedDict()
_in_vain: Counter[Hashable] = Counter()
_lock = RLock()


def run(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a functional overload gives, computed on the chip. Raises NoProgram, with nothing done, where that cannot be."""
    leaves, tree = pytree.tree_flatten((tuple(args), kwargs))
    leaves = [_plain(leaf) for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or any(t.dtype not in ON_CHIP for t in tensors) or TracingContext.try_get() is not None:
        raise NoProgram("")
    key = (op, tree, tuple(map(_key, leaves)))
    with _lock:
        program = _programs.get(key)
        if program is None:
            program = _programs[key] = _compiled(op, leaves, tree, tensors)
            while len(_programs) > _MOST:
                _programs.popitem(last=False)
        else:
            _programs.move_to_end(key)
    if isinstance(program, NoProgram):
        raise program
    # a batch norm in training writes its statistics, and its schema says that it writes nothing: gradients rely on that
    unchanged = torch.autograd.grad_mode._unsafe_preserve_version_counter(tuple(t for t in tensors if not t.is_inference()))
    try:
        with torch._C.DisableTorchFunction(), unchanged:
            return program(*tensors)
    except OutOfRange as error:
        raise NoProgram(error.message) from None
    except KtirError as error:  # of the data, which the host words as PyTorch does, or a fault
        raise NoProgram(error.message) from None


def _plain(leaf: Any) -> Any:
    """A number that comes as a tensor of the host, which is how `x + 2` gives it, as a number again."""
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and not leaf.dim() and leaf.dtype in _NUMBERS:
        return leaf.item()
    return leaf


def _key(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device, leaf.shape, leaf.stride()
    return (float, leaf.hex()) if isinstance(leaf, float) else (type(leaf), leaf)


def _compiled(op: Any, leaves: list[Any], tree: Any, tensors: list[torch.Tensor]) -> Program | NoProgram:
    kinds = (op, tuple(t.dtype for t in tensors))
    if _in_vain[kinds] >= _TRIES:
        return NoProgram("")
    try:
        return _compile(op, leaves, tree, tensors)
    except Exception as error:  # a fault of ours, too, is said in the warning that the host runs the operator
        _in_vain[kinds] += 1
        return NoProgram(error.message if isinstance(error, KtirError) else f"{type(error).__name__}: {error}".splitlines()[0])


def _compile(op: Any, leaves: list[Any], tree: Any, tensors: list[torch.Tensor]) -> Program:
    """The program of a graph of one node. Raises what compilation raises."""
    from ktir.lowering.inductor.backend import compile_graph

    graph = fx.Graph()
    nodes = iter([graph.placeholder(f"x{k}") for k in range(len(tensors))])
    args, kwargs = pytree.tree_unflatten([next(nodes) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree)
    node = graph.call_function(op, args, kwargs)
    several = len(op._schema.returns)
    results = tuple(graph.call_function(operator.getitem, (node, k)) for k in range(several)) if several > 1 else (node,)
    graph.output(results)
    module = fx.GraphModule(torch.nn.Module(), graph)
    without_data = FakeTensorMode(shape_env=ShapeEnv())  # where nobody looks after shapes, torch leaves its caches on disk alone
    with torch._C.DisableTorchFunction(), torch.no_grad(), config.patch(fallback="error"), _quiet(), tracing(TracingContext(without_data)):
        # traced with tensors of the host, so that all is as it is there: for other devices some operators give other types
        examples = [
            without_data.from_tensor(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu"), static_shapes=True)
            for t in tensors
        ]
        compiled = compile_graph(module, examples, device=next(t.device for t in tensors if t.device.type == "spyre"))

    def program(*tensors: torch.Tensor) -> Any:
        with torch.no_grad():
            found = compiled(*tensors)
        return found[0] if several == 1 else tuple(found)

    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Operands that do not go together are the host's to refuse, in PyTorch's words; torch's tracing also logs each with a traceback."""
    before, _TRACING.disabled = _TRACING.disabled, True
    try:
        yield
    finally:
        _TRACING.disabled = before


def has_program(op: Any) -> bool:
    """Whether it makes sense to compile an overload by itself: it gives new tensors, computed from others."""
    schema = op._schema
    if any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        return False
    if not schema.returns or any(str(r.type) != "Tensor" for r in schema.returns):
        return False
    return any("Tensor" in str(a.type) for a in schema.arguments)
