"""Operators outside of compiled graphs: each is compiled like a graph of one node, and kept by what its program depends on."""

from __future__ import annotations

import logging
import operator
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ktir import config
from ktir.device.operators import known
from ktir.device.operators.schemas import schema_of
from ktir.device.operators.trial import host_takes, key_of
from ktir.device.tensors.storage import MOST_DIMS, on_host
from ktir.diagnostics import KtirError
from ktir.emulator.machine.program.faults import IndexFault

if TYPE_CHECKING:
    from ktir.device.operators.numbers import ForNumbers, Traced

_MOST = 1024
"""Programs that are kept; the ones used longest ago go."""
_MOST_CONSTANTS = 64
"""Programs for the same operands that differ in numbers alone: the host computes with others."""
_BRANCHES = 4
"""Programs for all numbers of the same operands, which decide otherwise of them: `lerp` computes in two ways."""
_TRIES = 4
"""Times that an operator is compiled for the same types of operands in vain before it is not tried any more."""
_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2}
ON_CHIP = _FLOATS | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
"""Types of operands that programs may have."""

_NUMBERS = (torch.float64, torch.int64, torch.bool)
_TRACING = logging.getLogger("torch._subclasses.fake_tensor")

JOINS = (torch.ops.aten.cat.default, torch.ops.aten.stack.default)
"""Operators that join tensors, of which some may be without elements."""
_MOST_JOINED = 32
_INDEXED = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten._index_put_impl.default)

_AMONG = (torch.ops.aten.searchsorted, torch.ops.aten.bucketize)

Program = Callable[[Sequence[torch.Tensor]], Any]


class NoProgram(Exception):
    """An operator has no program for these operands; the text says why, if there is more to say."""


class HostRefuses(NoProgram):
    """And PyTorch's kernel on the host may not take them either: neither their types nor indices out of range. It says so in its words."""


_programs: OrderedDict[Hashable, Program | ForNumbers | NoProgram] = OrderedDict()
_constants: OrderedDict[Hashable, set[Hashable]] = OrderedDict()
"""By all that such programs have in common: the numbers that are constants of one. Those looked for longest ago go."""
_in_vain: Counter[Hashable] = Counter()
_lock = RLock()


def forget(op: Any) -> None:
    """What an operator is compiled to has changed."""
    known.forget()  # calls that write results have others within them
    with _lock:
        for key in [k for k in _programs if _operator(k) is op]:
            del _programs[key]
        for kinds in [k for k in _in_vain if isinstance(k, tuple) and k[0] is op]:
            del _in_vain[kinds]


def _operator(key: Any) -> Any:
    return key[0][0] if isinstance(key[0], tuple) else key[0]


def run(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a functional overload gives, computed on the chip. Raises NoProgram, with nothing done, where that cannot be."""
    try:
        if (found := known.again(op, tuple(args), kwargs)) is not None:
            return found
    except KtirError as error:
        if (refused := of_data(error)) is not None:
            raise refused from None
    if op in JOINS:
        named = schema_of(op).named(tuple(args), kwargs)
        parts, dim = named["tensors"], named.get("dim", 0)
        if len(parts) > _MOST_JOINED:  # in groups, which may share a program: to compile one takes as long as it has operands
            groups = [run(op, (parts[k : k + _MOST_JOINED], dim), {}) for k in range(0, len(parts), _MOST_JOINED)]
            return run(torch.ops.aten.cat.default, (groups, dim), {})
    if op in _INDEXED and any(i is not None and i.dtype == torch.uint8 for i in schema_of(op).named(tuple(args), kwargs)["indices"]):
        raise NoProgram("masks are of bool")  # the host warns of such ones, each time that it is tried
    leaves, tree = pytree.tree_flatten((tuple(args), kwargs))
    leaves = [_plain(leaf) for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if apart := [t.dtype for t in tensors if t.dtype not in ON_CHIP]:
        raise NoProgram(f"the chip has no {str(apart[0]).removeprefix('torch.')}")
    if any(isinstance(leaf, int) and not -(1 << 63) <= leaf < 1 << 63 for leaf in leaves):
        raise NoProgram("programs have numbers of up to 64 bits")
    if any(t.dim() > MOST_DIMS for t in tensors):
        raise NoProgram(f"programs have tensors of up to {MOST_DIMS} dims")
    if not tensors or TracingContext.try_get() is not None:
        raise NoProgram("")
    if op.overloadpacket in _AMONG and not _in_order(schema_of(op).named(tuple(args), kwargs)):
        raise NoProgram("the boundaries are in no order")  # then PyTorch's own search decides, step by step
    key = (op, tree, (torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), *map(key_of, leaves)))
    with _lock:
        program: Any = _programs.get(key)
        if program is None:
            program = _found(key, op, args, kwargs, leaves)
            while len(_programs) > _MOST:
                _programs.popitem(last=False)
        else:
            _programs.move_to_end(key)
    if isinstance(program, NoProgram):
        raise type(program)(*program.args)  # one that was raised would hold the frames of its callers, and their tensors
    try:
        with torch._C.DisableTorchFunction():
            found, writes = _without_a_trace(program, tensors)
    except KtirError as error:  # of the data, which the host words as PyTorch does, or a fault
        refused = of_data(error)
        if refused is None:
            refused = NoProgram(_said(error))
            with _lock:
                _programs[key] = NoProgram(*refused.args)  # a fault is met once
        raise refused from None
    if op.overloadpacket not in _AMONG:
        known.keep(op, tuple(args), kwargs, partial(_counted, program) if writes else program)
    return found


def of_data(error: KtirError) -> NoProgram | None:
    """What is said of data that a program has not taken; None of a fault."""
    kind = HostRefuses if isinstance(error, IndexFault) else NoProgram
    return kind(error.message) if _said(error) == error.message else None


def _without_a_trace(program: Program, tensors: Sequence[torch.Tensor]) -> tuple[Any, bool]:
    """What a program gives, and whether it has written an operand: a batch norm in training writes its statistics, while its schema says
    that it writes nothing, and gradients rely on that.
    """
    counted = tuple(t for t in tensors if not t.is_inference())
    before = [t._version for t in counted]
    with torch.autograd.grad_mode._unsafe_preserve_version_counter(counted):
        return program(tensors), before != [t._version for t in counted]


def _counted(program: Program, tensors: Sequence[torch.Tensor]) -> Any:
    return _without_a_trace(program, tensors)[0]


def _in_order(named: dict[str, Any]) -> bool:
    """Whether boundaries, which a program counts, are as one that counts wants them: in order, and none of them NaN."""
    given = [named.get("boundaries", named.get("sorted_sequence")), named.get("sorter")]
    boundaries, sorter = (None if t is None else on_host(t) if t.device.type == "spyre" else t for t in given)
    if boundaries is not None and sorter is not None:
        boundaries = None if _lost(boundaries, sorter) else boundaries.gather(-1, sorter)
    return (
        boundaries is not None
        and boundaries.dim() > 0
        and bool((boundaries == boundaries).all() and (boundaries[..., 1:] >= boundaries[..., :-1]).all())
    )


def _lost(boundaries: torch.Tensor, sorter: torch.Tensor) -> bool:
    wanted = sorter.dtype == torch.int64 and sorter.shape == boundaries.shape
    return not wanted or bool(((sorter < 0) | (sorter >= boundaries.shape[-1])).any())


def _plain(leaf: Any) -> Any:
    """A number that comes as a tensor of the host, which is how `x + 2` gives it, as a number again."""
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and not leaf.dim() and leaf.dtype in _NUMBERS:
        return leaf.item()
    return leaf


def _found(key: Any, op: Any, args: Sequence[Any], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
    """The program of a call that has none by its key: one for all numbers, or a new one for these."""
    tree = key[1]
    if not host_takes(op, tree, leaves):
        program = _programs[key] = HostRefuses("")  # for these sizes and numbers: others of the same types are tried again
        return program
    from ktir.device.operators import numbers

    places = numbers.changing(op, args, kwargs, leaves)
    constants = places or tuple(k for k, leaf in enumerate(leaves) if type(leaf) in (int, float))
    kind, given = numbers.key_of_kind(op, tree, leaves, constants), tuple(key_of(leaves[k]) for k in constants)
    before = _numbers_before(kind)
    if places and before - {given} and (general := _for_any_numbers(kind, op, leaves, tree, places)) is not None:
        return general
    if constants and given not in before and len(before) >= _MOST_CONSTANTS and config.current().fallback != "error":
        return NoProgram(f"{_MOST_CONSTANTS} programs were compiled that have other numbers")
    before.add(given)
    program = _programs[key] = _compiled(op, leaves, tree)
    return program


def _numbers_before(kind: Hashable) -> set[Hashable]:
    """The numbers for which there are programs of a kind."""
    found = _constants.setdefault(kind, set())
    _constants.move_to_end(kind)
    while len(_constants) > _MOST:
        _constants.popitem(last=False)
    return found


def _for_any_numbers(kind: Hashable, op: Any, leaves: list[Any], tree: Any, places: Sequence[int]) -> Program | None:
    """What the program that takes the numbers at these places as arguments does for those of a call; None where there is none for them."""
    from ktir.device.operators.numbers import ForNumbers

    values = [float(leaves[k]) for k in places]
    for branch in range(_BRANCHES):
        general = _programs.get((kind, branch))
        if general is None:
            general = _programs[kind, branch] = _compiled(op, leaves, tree, places)
        _programs.move_to_end((kind, branch))
        if not isinstance(general, ForNumbers):
            return None
        if general.takes(*values):
            return general.program_of(values)
    return None


def _compiled(op: Any, leaves: list[Any], tree: Any, places: Sequence[int] = ()) -> Program | ForNumbers | NoProgram:
    """places: of numbers that are arguments."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    kinds = (op, tuple(t.dtype for t in tensors), bool(places))
    if _in_vain[kinds] >= _TRIES:
        return NoProgram(f"{_TRIES} programs for such types were refused")
    without_data = FakeTensorMode(shape_env=ShapeEnv())  # where nobody looks after shapes, torch leaves its caches on disk alone
    graph = traced = None
    try:
        if places:
            from ktir.device.operators.numbers import Traced

            traced = Traced(without_data, {k: float(leaves[k]) for k in places})
        graph = _graph(op, leaves, tree, traced)
        program = _compile(graph, tensors, without_data, traced)
        return traced.program(program) if traced else program
    except Exception as error:  # a fault of ours, too, is said in the warning that the host runs the operator
        if not host_takes(op, tree, leaves, again=True):
            return HostRefuses("")
        _in_vain[kinds] += 1
        return NoProgram(_said(error, graph))


def _said(error: Exception, graph: fx.GraphModule | None = None) -> str:
    """A reason, and of a fault of ours what reproduces it."""
    from ktir.lowering.inductor.running.guarded import of_torch, written
    from ktir.runtime.kernel import OURS

    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return "what is in its operands decides what its results are like, and programs are made without it"
    if isinstance(error, KtirError):
        return "; ".join([error.message, *(d.message for d in error.diagnostics[1:] if d.message.startswith(OURS))])
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if graph is None or of_torch(error) else f"{text}; {written(graph, error)}"


def _graph(op: Any, leaves: list[Any], tree: Any, traced: Traced | None = None) -> fx.GraphModule:
    """A graph of one node; its results are those of the operator, one by one. traced: the numbers that are arguments."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{k}") for k in range(sum(isinstance(leaf, torch.Tensor) for leaf in leaves))]
    rest, given = iter(nodes), traced.nodes(graph) if traced else {}
    found = [next(rest) if isinstance(leaf, torch.Tensor) else given.get(k, leaf) for k, leaf in enumerate(leaves)]
    args, kwargs = pytree.tree_unflatten(found, tree)
    node = graph.call_function(op, args, kwargs)
    several = len(op._schema.returns)
    graph.output(tuple(graph.call_function(operator.getitem, (node, k)) for k in range(several)) if several > 1 else (node,))
    return fx.GraphModule(torch.nn.Module(), graph)


def _compile(module: fx.GraphModule, tensors: list[torch.Tensor], without_data: FakeTensorMode, traced: Traced | None = None) -> Program:
    """The program of such a graph. Raises what compilation raises."""
    compile_graph = _compiler()
    with torch._C.DisableTorchFunction(), torch.no_grad(), config.patch(fallback="error"), _quiet(), tracing(TracingContext(without_data)):
        # traced with tensors of the host, so that all is as it is there: for other devices some operators give other types
        examples = [
            without_data.from_tensor(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu"), static_shapes=True)
            for t in tensors
        ]
        device = next(t.device for t in tensors if t.device.type == "spyre")
        # torch's caches keep no guards of floats, by which it is known for which numbers a program is
        compiled = compile_graph(module, [*examples, *(traced.examples if traced else ())], device=device, cached=traced is None)

    def program(tensors: Sequence[torch.Tensor]) -> Any:
        if (again := compiled.again) is not None:  # which asks for no gradients, whatever the mode
            found = again(*tensors)
        else:
            with torch.no_grad():
                found = compiled(*tensors)
        return found[0] if len(found) == 1 else tuple(found)

    return program


@cache
def _compiler() -> Callable[..., Any]:
    """What compiles, imported with the first program. Parts of torch that come with it say that other parts of torch are out of date."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from ktir.lowering.inductor import adapter  # noqa: F401
        from ktir.lowering.inductor.backend import compile_graph
    return compile_graph


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
