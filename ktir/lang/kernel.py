"""Kernels: a Python function that is traced once per shapes, types and parameters, and what runs it."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from ktir import config
from ktir.analysis.calls import functions_of, put_numbers
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, Remark, Unsupported, remark, remarks
from ktir.emulator import notebook
from ktir.emulator.machine.reports.chrome import chrome_trace
from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute
from ktir.lang import eager
from ktir.lang.base.arguments import apart, bound, check_memory, numbers, signature
from ktir.lang.base.constants import constants_given
from ktir.lang.base.mistakes import Mistake, kind_of, place_of
from ktir.lang.base.outside import frozen, outside
from ktir.lang.control import running
from ktir.lang.tracing import Traced, trace
from ktir.lowering.compile import compile_logical
from ktir.lowering.ktir_lift import TOLERANCE, WAY, WAYS
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.runtime import failures
from ktir.runtime.executable import Executable

On = Literal["executor", "numpy", "chip"]
Way = Literal["pin", "lift", "auto"]
_LOCATION = re.compile(r'^#at\d+ = loc\(.*\n| loc\((?:#at\d+|"[^"\n]*":\d+:\d+)\)', re.MULTILINE)
_PLACES = ("executor", "numpy", "chip")


@contextmanager
def _spoken() -> Any:
    """An error of a kernel reaches the user without the frames that found it."""
    try:
        yield
    except KtirError as error:
        raise error.with_traceback(None) from None


class _Recent(OrderedDict[Any, Any]):
    """What was made for keys, of those that were asked for last: numbers of calls are in keys, and may be others each time."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __reduce__(self) -> Any:  # a copy begins with nothing
        return _Recent, (self.most,)

    def found(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for a key, or is now."""
        known = self.pop(key, None) or make()
        self[key] = known  # the last one now
        while len(self) > self.most:
            self.popitem(last=False)
        return known


class _OnChip(NamedTuple):
    """A call on the chip."""

    executable: Executable
    taken: tuple[int, ...]
    """Positions of the arguments that the program has."""
    constants: tuple[np.ndarray, ...]
    """What it takes behind them."""
    said: tuple[Remark, ...]
    """What the compiler decided."""


@dataclass(eq=False)
class Kernel:
    """A kernel: call it on arrays, which it writes in place. Keyword-only arguments are parameters, known when the function is traced.

    `kernel[grid]` runs it on a grid of tiles; without a grid the compiler divides the work.
    """

    function: Callable[..., object]
    grid: tuple[int, ...] | None = None
    on: On = "executor"
    policy: Policy | None = None
    way: Way | None = None
    tolerance: float | None = None
    _traced: _Recent = field(default_factory=lambda: _Recent(256), repr=False, compare=False)
    _compiled: _Recent = field(default_factory=lambda: _Recent(64), repr=False, compare=False)

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function, updated=())  # type: ignore[arg-type]

    def __getitem__(self, grid: Any) -> Kernel:
        return self.using(grid=grid)

    def using(self, *, grid: Any = ..., on: Any = None, policy: Policy | None = None, way: Any = None, tolerance: Any = None) -> Kernel:
        """The same kernel on a grid (None: divided by the compiler), run elsewhere (`executor`, `numpy`, `chip`), under another policy.

        way: what the chip's compiler makes of the grid: it keeps that (`pin`), divides the work itself (`lift`), or takes the faster one
        of both (`auto`). tolerance: the relative difference that sums in another order may make, without which `auto` keeps their order.
        """
        with _spoken():
            if on is not None and on not in _PLACES:
                raise Mistake(f"a kernel runs on one of {', '.join(_PLACES)}, but got {on!r:.40}")
            if way is not None and way not in WAYS:
                raise Mistake(f"the way of a grid is one of {', '.join(WAYS)}, but got {way!r:.40}")
            if tolerance is not None and (isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1):
                raise Mistake(f"a tolerance is a number from 0 to 1, but got {tolerance!r:.40}")
            wanted = self.grid if grid is ... else None if grid is None else _grid(grid)
            within = self.tolerance if tolerance is None else float(tolerance)
            return replace(self, grid=wanted, on=on or self.on, policy=policy or self.policy, way=way or self.way, tolerance=within)

    def __call__(self, *arrays: Any, **named: Any) -> None:
        if running.get() is not None:  # a kernel in a kernel is a part of it
            self.function(*arrays, **named)
            return
        with _spoken():
            arguments, parameters = bound(self.function, arrays, named)
            if self.on == "numpy":
                eager.run(self.function, arguments, parameters, self.grid)
                return
            traced = self._trace(arguments, parameters, known=self.on == "chip" and self.grid is None)
            written = traced.written(arguments)
            check_memory(arguments, written)
            if not written:  # its arrays have no elements, or its loops no trip
                return
            values = apart(arguments.values())
            if self.on == "executor":
                execute(traced.text, traced.name, values, policy=self.policy, source=self._file)
            else:
                chip = self._chip(arguments, parameters)[1]
                chip.executable(*[values[i] for i in chip.taken], *chip.constants)
            for given, value, role in zip(arguments.values(), values, traced.roles, strict=True):
                if value is not given and role in ("output", "input_output"):
                    given[...] = value

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays and numbers that it takes."""
        return signature(self.function)[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what is known when it is traced."""
        return tuple(signature(self.function)[1])

    def traced(self, *arrays: Any, **named: Any) -> Traced:
        """What a call is as KTIR with places in Python; of arrays shape and type count."""
        with _spoken():
            return self._trace(*bound(self.function, arrays, named))

    def ktir(self, *arrays: Any, **named: Any) -> str:
        """The KTIR of a call."""
        with _spoken(), context():
            return print_module(parse_module(self.traced(*arrays, **named).text, self._file), debuginfo=False)

    def explain(self, *arrays: Any, **named: Any) -> str:
        """What a call does, on copies of the arrays: traffic by line of Python, and what the chip's compiler decides, or why it refuses."""
        with _spoken():
            arguments, parameters = bound(self.function, arrays, named)
            traced = self._trace(arguments, parameters)
            copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments.values()]
            report = execute(traced.text, traced.name, copies, policy=self.policy, source=self._file)
            where = _where(traced.tiles)
            if self.grid is None and traced.tiles is not None:
                where = "on one tile, for it has loops or conditions of the device and no grid"
            text = [f"kernel '{traced.name}', {where}"]
            for (name, value), role in zip(arguments.items(), traced.roles, strict=True):
                text.append(f"  {name}: {role}, {kind_of(value)}")
            for view, (got, put) in sorted(report.views.items()):
                text.append(f"  {view}: {got:,} bytes read, {put:,} written")
            if report.lx_peak_bytes:
                text.append(f"  buffers: {report.lx_peak_bytes:,} bytes of each tile's scratchpad")
            with remarks() as found:
                try:
                    chip = self._chip(arguments, parameters)[1]
                except KtirError as error:
                    return "\n".join([*text, f"  chip: {error}", *(f"  {r}" for r in found)])
            machine = chip.executable.machine
            text.append(f"  chip: {machine.report.cycles:,} cycles, {machine.bottlenecks.program}")
            if machine.report.cycles:
                text.append(f"  what may help: {machine.bottlenecks.program.resource.remedy}")
            return "\n".join([*text, *(f"  {r}" for r in chip.said)])

    def trace(self, *arrays: Any, **named: Any) -> str:
        """When each unit of the chip does what, as a Chrome trace, which Perfetto opens. Nothing runs: it does not depend on values."""
        with _spoken():
            machine = self._chip(*bound(self.function, arrays, named))[1].executable.machine
            return json.dumps(chrome_trace(machine.program, machine.trace, machine.target))

    def cycles(self, *arrays: Any, **named: Any) -> int:
        """Cycles of a call on the chip. Nothing runs: they do not depend on values."""
        with _spoken():
            return self._chip(*bound(self.function, arrays, named))[1].executable.machine.report.cycles

    def _repr_html_(self) -> str:
        title = f"kernel '{self.function.__name__}', {_where(self.grid)}, runs on {self.on}"
        try:
            shown = notebook.source(inspect.cleandoc("\n" + inspect.getsource(self.function)), "python")
        except OSError:  # typed where nothing keeps it
            shown = ""
        last = [_LOCATION.sub("", traced.text) for traced in list(self._traced.values())[-1:]]
        ktir = "".join(notebook.source(text, "ktir") for text in last)
        return notebook.titled(title, shown, notebook.folded("KTIR of the last trace", ktir))

    @property
    def _file(self) -> str:
        return self.function.__code__.co_filename

    def _chip(self, arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[Traced, _OnChip]:
        """A call as KTIR and on the chip. Its numbers are constants there: each one takes a program of its own."""
        traced = self._trace(arguments, parameters, known=self.grid is None)
        if not traced.written(arguments):
            raise Mistake(f"this call of '{traced.name}' has nothing to do: its loops have no trip, or its arrays no elements")
        key = (traced.text, *numbers(arguments).values(), config.current().key())
        return traced, self._compiled.found(key, lambda: self._compile(traced, numbers(arguments)))

    def _compile(self, traced: Traced, numbers: Mapping[int, int]) -> _OnChip:
        """The program of the chip; `numbers`: what arguments are, by position."""
        try:
            with context(), ir.Location.unknown(), remarks() as said:
                module = parse_module(traced.text, self._file)
                taken = [i for i, role in enumerate(traced.roles) if role not in ("number", "unused")]
                if traced.tiles is None:
                    numbers = {**numbers, **{i: 0 for i, role in enumerate(traced.roles) if role == "unused"}}
                if numbers:
                    function = functions_of(module)[traced.name]
                    put_numbers(function, numbers)
                    run_pipeline(module, "canonicalize")  # what they decide are constants
                    if traced.tiles is not None:  # and perhaps that nobody asks for some memory
                        left = [i for i in range(len(traced.roles)) if i not in numbers]
                        used = {i for i, a in zip(left, function.arguments, strict=True) if next(iter(a.uses), None) is not None}
                        taken = [i for i in taken if i in used]
                constants = constants_given(functions_of(module)[traced.name])
                found = _OnChip(Executable.load(compile_logical(module)), tuple(taken), tuple(constants), tuple(said))
            for r in said:
                remark(r.kind, r.pass_name, r.message, r.location)
            return found
        except Unsupported as error:
            if " f64" not in error.message:
                raise
            why = (
                "NumPy makes float64 of float32 and int32 or int64, and np.float64 stays it beside any tile; '.astype(np.float32)' of the "
                "integers keeps float32, 'float(..)' of the number the tile's type"
            )
            raise Unsupported(error.message, error.location, (*error.notes, Diagnostic("note", why, error.location))) from None
        except Exception as error:
            failures.capture(error, "compile", kernel_name=traced.name)
            raise

    def _trace(self, arguments: Mapping[str, Any], parameters: Mapping[str, Any], known: bool = False) -> Traced:
        """`known`: with the numbers that arguments are."""
        try:
            hash(tuple(parameters.values()))
        except TypeError:
            wrong = next((n for n, p in parameters.items() if getattr(p, "__hash__", None) is None), next(iter(parameters)))
            raise Mistake(
                f"parameter '{wrong}' expects a value that does not change, as a number or a tuple, but got {kind_of(parameters[wrong])}"
            ) from None
        place = place_of(self.function)
        stated = [] if self.way is None else [f'{WAY} = "{self.way}"']
        stated += [] if self.tolerance is None else [f"{TOLERANCE} = {self.tolerance:e} : f64"]
        kinds = tuple((a if known else int) if isinstance(a, int) else (a.shape, a.dtype) for a in arguments.values())
        given = tuple((n, frozen(p, self.function)) for n, p in parameters.items())
        key = (self.grid, *stated, kinds, given, outside(self.function))
        found = self._traced.found(key, lambda: trace(self.function, arguments, parameters, self.grid, place, stated, known=known))
        found.ranges.check(arguments)
        return found


def _where(grid: tuple[int, ...] | None) -> str:
    return "divided by the compiler" if grid is None else f"on a grid of {' x '.join(map(str, grid))} tiles"


def _grid(grid: Any) -> tuple[int, ...]:
    listed = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(listed) <= 3 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in listed):
        raise Mistake(f"a grid expects 1 to 3 numbers of at least 1, but got {grid!r:.40}")
    return listed


@dataclass(frozen=True)
class Tuned:
    """The fastest of some ways to run a kernel. A call runs it so; `str` lists what was tried, and marks it."""

    kernel: Kernel
    parameters: Mapping[str, Any]
    cycles: int
    tried: tuple[tuple[str, int | KtirError], ...]
    """Each way, and its cycles or why the chip's compiler refuses it."""

    def __call__(self, *arrays: Any, **named: Any) -> None:
        self.kernel(*arrays, **{**self.parameters, **named})

    def __str__(self) -> str:
        first = next(i for i, (_, found) in enumerate(self.tried) if found == self.cycles)
        said = (f"{way}: {f'{found:,} cycles' if isinstance(found, int) else found.message}" for way, found in self.tried)
        return "\n".join(line + ", the best" * (i == first) for i, line in enumerate(said))

    def _repr_html_(self) -> str:
        rows = ((way, found if isinstance(found, int) else found.message) for way, found in self.tried)
        title = f"kernel '{self.kernel.function.__name__}': {self.cycles:,} cycles at best"
        return notebook.titled(title, notebook.table(("tried", "cycles"), rows))


def autotune(tuned: Kernel, *arrays: Any, grid: Sequence[Any] = (...,), **ways: Sequence[Any]) -> Tuned:
    """Find the grid and parameters with which a kernel takes the fewest cycles on the chip, for arrays of these shapes and types. Each
    parameter is given as a sequence of its values, of which all combinations are compiled; none is run.
    """
    with _spoken():
        for name, values in {"grid": grid, **ways}.items():
            if isinstance(values, list | tuple) and not values:
                raise Mistake(f"'autotune' expects at least one value to try of '{name}'")
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise Mistake(f"'autotune' expects the values to try of '{name}' in a list, but got {kind_of(values)}")
        tried: list[tuple[str, int | KtirError]] = []
        best: tuple[int, Kernel, dict[str, Any]] | None = None
        for chosen, *values in product(grid, *ways.values()):
            candidate, parameters = tuned.using(grid=chosen), dict(zip(ways, values, strict=True))
            words = [f"grid={candidate.grid}"] * (chosen is not ...) + [f"{n}={v!r}" for n, v in parameters.items()]
            found: int | KtirError
            try:
                found = candidate.cycles(*arrays, **parameters)
            except KtirError as error:
                found = error
            else:
                best = min(best or (found, candidate, parameters), (found, candidate, parameters), key=lambda b: b[0])
            tried.append((", ".join(words), found))
        if best is None:
            first = next(f for _, f in tried if isinstance(f, KtirError))
            raise Mistake(f"none of {len(tried)} ways to run '{tuned.function.__name__}' reaches the chip: {first.message}", first.location)
        return Tuned(best[1], best[2], best[0], tuple(tried))


def kernel(function: Any = None, *, grid: Any = None, on: On = "executor", way: Way | None = None, tolerance: float | None = None) -> Any:
    """Makes a kernel of a function: `@kernel`, or with what `Kernel.using` takes, as in `@kernel(grid=32, way="auto", tolerance=2**-9)`."""
    if function is None:
        return lambda f: kernel(f, grid=grid, on=on, way=way, tolerance=tolerance)
    with _spoken():
        if not inspect.isfunction(function) or not function.__name__.isidentifier():
            raise Mistake(f"a kernel expects a function with a name, but got {kind_of(function)}")
        signature(function)
        return Kernel(function).using(grid=grid, on=on, way=way, tolerance=tolerance)
