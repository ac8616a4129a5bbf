"""The door to the KTIR executor: `execute` runs a function of a module on arrays."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from ktir.assembly import parse_module
from ktir.context import lent
from ktir.diagnostics import KtirError
from ktir.emulator import notebook
from ktir.emulator.policy import Policy
from ktir.emulator.reference.arguments import Bound, Scratch, bind_arguments
from ktir.emulator.reference.compile.compiler import compile_module
from ktir.emulator.reference.compile.program import Function, Program
from ktir.emulator.reference.observer import Observer
from ktir.emulator.reference.plan import Plan
from ktir.emulator.reference.record.recording import NeedsData, NeedsTiles
from ktir.mlir import ir

__all__ = ["Report", "Scratch", "execute"]


@dataclass(frozen=True)
class Report:
    """What an execution did. `seconds` is the wall time of the launch; `prepare_seconds` that of compiling, recording and checking,
    0 if the plan was at hand. Bytes are summed over all tiles, per memory space ("global", "ct_local") and per view (read, written;
    views are named by their place in the source); `ops` counts executed ops, one per trip for all tiles together; `arithmetic` counts
    scalar operations per op name, over all tiles; `lx_peak_bytes` is the highest LX address used on a tile, `lx_peaks` per tile.
    `channel_bytes_read`: bytes of global memory read where what several tiles load at once counts once, as a multicast brings it."""

    ops: int
    bytes_read: Mapping[str, int]
    bytes_written: Mapping[str, int]
    lx_peak_bytes: int
    seconds: float
    prepare_seconds: float
    views: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    arithmetic: Mapping[str, int] = field(default_factory=dict)
    lx_peaks: tuple[int, ...] = ()
    channel_bytes_read: int = 0

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("ops", self.ops)]
        rows += [(f"bytes read of {space}", n) for space, n in self.bytes_read.items()]
        rows += [(f"bytes written of {space}", n) for space, n in self.bytes_written.items()]
        rows += [("scratchpad bytes of a tile", self.lx_peak_bytes), ("seconds", f"{self.seconds:.4f}")]
        views = notebook.table(("view", "bytes read", "written"), ((name, *moved) for name, moved in self.views.items()))
        counted = notebook.table(("op", "scalar operations"), sorted(self.arithmetic.items(), key=itemgetter(1), reverse=True))
        shown = notebook.table(("what", "how much"), rows)
        return notebook.titled("report", shown, notebook.folded("views", views), notebook.folded("arithmetic", counted))


# Caches

_MOST_PROGRAMS = 64
_MOST_PLANS = 512
_MOST_BYTES = 2 << 30
"""Memory that the plans at hand may hold together; the newest one is always kept."""

_Key = bytes | tuple[str, str]
"""The contents of a module: a digest of it, or what the text is called and the text, which keeps its hash."""
_programs: OrderedDict[_Key, Program] = OrderedDict()
_plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
_held = 0
"""Bytes of all plans."""
_modes: dict[tuple[Any, ...], tuple[bool, frozenset[str]]] = {}
"""Programs that cannot be recorded for all data and all tiles at once: whether data decides, and kernels recorded tile by tile."""
_lock = threading.Lock()


_FUNCTION = re.compile(r"func\.func\s+(?:public\s+|private\s+)?@([\w$.-]+)\s*\(([^)]*(?:\([^)]*\)[^)]*)*)\)")
_PARAMETER = re.compile(r"%([\w$.-]+)\s*:")


def _name_arguments(program: Program, text: str) -> None:
    """Names of function arguments as the text has them; MLIR does not keep them."""
    bare = re.sub(r"//[^\n]*", "", text)
    for match in _FUNCTION.finditer(bare):
        function, names = program.functions.get(match.group(1)), _PARAMETER.findall(match.group(2))
        if function is not None and len(names) == len(function.arguments):
            function.arguments = [replace(a, alias=n) for a, n in zip(function.arguments, names, strict=True)]


def _program(module: ir.Module | str, source: str = "<text>") -> tuple[_Key, Program]:
    """The compiled program of a module, found again by its contents: a module may have been changed since."""
    if isinstance(module, str):
        key = (source, module)
    else:
        contents = io.BytesIO()
        module.operation.write_bytecode(contents)  # with locations; several times as fast as printing
        key = hashlib.sha256(contents.getvalue()).digest()
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return key, _programs[key]
    if isinstance(module, str):
        with lent(len(module)):
            program = compile_module(parse_module(module, source))
        _name_arguments(program, module)
    else:
        program = compile_module(module)
    with _lock:
        _programs[key] = program
        while len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    return key, program


def _plan(key: tuple[Any, ...], make: Any) -> Plan:
    with _lock:
        if key in _plans:
            _plans.move_to_end(key)
            return _plans[key]
    plan = make()
    global _held
    with _lock:
        if not _plans:
            _held = 0
        elif key in _plans:  # of another thread, meanwhile
            _held -= _plans[key].bytes
        _plans[key] = plan
        _held += plan.bytes
        while len(_plans) > 1 and (len(_plans) > _MOST_PLANS or _held > _MOST_BYTES):
            _held -= _plans.popitem(last=False)[1].bytes
    return plan


def _planned(
    whole: tuple[Any, ...], program: Program, function: Function, bound: Bound, observer: Observer | None
) -> tuple[Plan, float, float]:
    """The plan of a launch, when its making began, and when it was done, 0 if it was at hand or has been launched already."""
    policy: Policy = whole[-1]
    watched = observer is not None and observer.values
    eager, by_tile = _modes.get(whole, (False, frozenset[str]()))
    eager |= watched
    made = 0.0

    def make() -> Plan:
        nonlocal made
        plan = Plan(program, function, bound, policy, by_tile=by_tile, observer=observer)
        made = time.perf_counter()
        return plan

    plan: Plan | None = None
    began = time.perf_counter()
    while plan is None:
        try:
            if eager:
                began = time.perf_counter()
                plan = Plan(program, function, bound, policy, eager=True, by_tile=by_tile, observer=observer)
            else:
                plan = _plan(whole, make)
        except MemoryError:
            raise KtirError(f"'{function.name}' needs more memory than there is", function.where.location) from None
        except NeedsData:
            eager = True
        except NeedsTiles as need:
            if need.kernel in by_tile or not need.kernel:
                raise
            by_tile |= {need.kernel}
    if by_tile or (eager and not watched):
        _modes[whole] = (eager, by_tile)
        while len(_modes) > _MOST_PLANS:
            _modes.popitem()
    return plan, began, made


def execute(
    module: ir.Module | str,
    func: str | None = None,
    args: Sequence[Any] | Mapping[str, Any] = (),
    *,
    policy: Policy | None = None,
    memory: Mapping[Any, Any] | None = None,
    source: str = "<text>",
    observer: Observer | None = None,
) -> Report:
    """Execute a function of `module`, at any level, on `args`; arrays are updated in place.

    module: an MLIR module, or KTIR text. func: its name; None takes the one function that no other calls. args: by position, or by
    `ktir.name` (in text also by the name of the argument). An `index` parameter that is a base address takes a C-contiguous NumPy
    array (floats, signed integers, uint16 for the bits of a 16-bit float that NumPy lacks, or uint8 for plain bytes; its memory in C
    order is the buffer) or `Scratch`; other parameters take numbers. Parameters of role `pool` or `iota` may be left out. memory: arrays at
    addresses that the program has as numbers: `("global", offset)` or `("lx", tile, offset)`, in elements of the array.
    source: what messages call the text. observer: is told of the execution as it goes (`ktir.emulator.reference.observer`).

    Raises Finding (`ktir.emulator.findings`) for a fault of the program, before any array is touched; KtirError for arguments that
    do not fit and Unsupported for constructs that cannot be executed.
    """
    begin = time.perf_counter()
    policy = policy or Policy()
    key, program = _program(module, source)
    name = func or program.entry
    if name is None or name not in program.functions:
        known = ", ".join(program.functions)
        raise KtirError(f"the module has no function named '{name}'; it has {known}" if name else f"expects the name of one of {known}")
    function = program.functions[name]
    if function.body is None:
        raise KtirError(f"function '{name}' has no body", function.where.location)
    bound = bind_arguments(function, args, memory or {})
    most = max(f.tiles for f in program.functions.values())
    for space, tile, *_ in bound.placed:
        if space == "lx" and tile >= most:
            raise KtirError(f"memory in LX of tile {tile}: the program has {most} tiles", function.where.location)
    plan, began, made = _planned((key, name, bound.signature, bound.placed, policy), program, function, bound, observer)
    _check_writable(plan, function, bound)
    bound.apart(function, plan.written)
    start = time.perf_counter()
    counts = plan.launch(bound.arrays, observer)
    for copy in bound.copies:
        if copy.number in plan.written:
            copy.write_back()
    end = time.perf_counter()
    return Report(
        counts.ops,
        dict(counts.read),
        dict(counts.written),
        plan.lx_peak,
        end - (began if plan.eager else start),
        made - begin if made else 0.0,
        {view: (read, written) for view, (read, written) in counts.views.items()},
        dict(counts.arithmetic),
        plan.lx_peaks,
        counts.read["global"] - counts.shared,
    )


def _check_writable(plan: Plan, function: Function, bound: Bound) -> None:
    for number in plan.written:
        if bound.arrays[number].flags.writeable:
            continue
        at = next((i for i, entry in enumerate(bound.signature) if entry[:2] == ("array", number)), None)
        what = "memory at an address" if at is None else f"argument {at}"
        if at is not None and (name := function.arguments[at].name or function.arguments[at].alias):
            what += f" ('{name}')"
        raise KtirError(f"{what} of '{function.name}' is written, but the array is read-only", function.where.location)
