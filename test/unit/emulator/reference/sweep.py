"""What the sweeps share: programs that apply many ops to many values, and the record of which ops they executed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from kernel_texts import kernel, load, store, tensor
from sweep_values import (
    FEW,
    FLOATS,
    HOST,
    INTEGERS,
    MANY,
    WIDTHS,
    Array,
    bare,
    check_same,
    crossed,
    edges,
    finished,
    from_host,
    least_exponent,
    most,
    ordinal,
    precision,
    random_values,
    rounded,
    seeds,
    shapes,
    tile_counts,
    to_host,
    wrapped,
)

from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

__all__ = [
    "FEW",
    "FLOATS",
    "FORMS",
    "HOST",
    "INTEGERS",
    "IN_BODIES",
    "MANY",
    "WIDTHS",
    "Array",
    "Case",
    "Program",
    "apply",
    "bare",
    "check_same",
    "covered",
    "covers",
    "crossed",
    "edges",
    "finished",
    "from_host",
    "grouped",
    "least_exponent",
    "literal",
    "most",
    "ordinal",
    "precision",
    "random_values",
    "rounded",
    "run",
    "seeds",
    "shapes",
    "tile_counts",
    "to_host",
    "verify",
    "verify_edges",
    "verify_random",
    "wrapped",
]

FORMS = ("tensors", "body", "data", "known")
"""An op on whole tensors, in the body of a `linalg.generic`, on scalars taken from tensors, on scalars that are constants."""
IN_BODIES = FORMS[1:]
"""The forms of ops that take scalars only."""

_seen: set[str] = set()
_OPERATION = re.compile(r"\b((?:affine|arith|math|spyreop|linalg|tensor|memref|scf|ktdp|func)\.[a-z_0-9]+(?:\.in_parallel)?)")


def run(text: str, args: Sequence[Any], **given: Any) -> Any:
    """`execute`, noting which ops the program has."""
    _seen.update(_OPERATION.findall(text))
    return execute(text, args=list(args), **given)


def covers(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Says that a test executes the ops `names` and compares what they make; after the test it is checked that it did."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def checked(*args: Any, **given: Any) -> None:
            _seen.clear()
            test(*args, **given)
            assert set(names) <= _seen, f"not executed: {sorted(set(names) - _seen)}"

        vars(checked)["covered_ops"] = names
        return checked

    return mark


def covered(namespace: dict[str, Any]) -> set[str]:
    """Ops that the cases and the tests of a module cover, and those that its COVERED names: what tests within tests cover."""
    names = {case.op for case in namespace.get("CASES", ())} | namespace.get("COVERED", set())
    return names.union(*(getattr(value, "covered_ops", ()) for value in namespace.values()))


@dataclass(frozen=True)
class Case:
    """An elementwise op on operands of types `takes`, with results of types `gives`.

    text: the op without results: `{x[0]}` is an operand, `{t[0]}` its type, `{to[0]}` the type of a result. oracle: exact values of
    the operands -> exact results. inside: where operands have a defined result; elsewhere `instead` replaces them.
    """

    op: str
    text: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    oracle: Callable[..., Any]
    ulps: int = 0
    inside: Callable[..., Any] | None = None
    instead: tuple[Any, ...] = ()
    forms: tuple[str, ...] = FORMS

    def __str__(self) -> str:
        return f"{self.op}-{'-'.join((*self.takes, *self.gives))}"

    def defined(self, operands: Sequence[Array]) -> list[Array]:
        if self.inside is None:
            return list(operands)
        holds = np.asarray(self.inside(*operands), np.bool_)
        return [np.where(holds, o, v).astype(o.dtype) for o, v in zip(operands, self.instead, strict=True)]

    def wanted(self, operands: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            found = self.oracle(*operands)
        found = found if isinstance(found, tuple) else (found,)
        return [np.broadcast_to(finished(e, f), operands[0].shape) for e, f in zip(self.gives, found, strict=True)]


def literal(element: str, value: Any) -> str:
    """A scalar constant as text, exactly."""
    if element in FLOATS:
        host = to_host(element, np.array([value], np.float64))
        return f"0x{int(host.view(f'u{host.itemsize}')[0]):0{2 * host.itemsize}X} : {element}"
    return "true" if element == "i1" and value else "false" if element == "i1" else f"{int(value)} : {element}"


class Program:
    """The text of a kernel on `tiles` tiles, and its arrays: each has an axis for the tiles first."""

    def __init__(self, tiles: int) -> None:
        self.tiles = tiles
        self.arguments: list[str] = []
        self.arrays: list[Array] = []
        self.outputs: list[tuple[int, str]] = []
        self.body = "%tile = ktdp.get_compute_tile_id : index\n"
        self.serial = 0

    def name(self) -> str:
        """A new SSA name."""
        self.serial += 1
        return f"%v{self.serial}"

    def base(self, array: Array) -> str:
        """A new argument; returns the address of the tile's own part."""
        argument, size, offset, at = f"%arg{len(self.arrays)}", self.index(prod(array.shape[1:])), self.name(), self.name()
        self.arrays.append(array)
        self.arguments.append(argument)
        self.body += f"{offset} = arith.muli %tile, {size} : index\n{at} = arith.addi {argument}, {offset} : index\n"
        return at

    def index(self, value: int) -> str:
        """A constant."""
        name = self.name()
        self.body += f"{name} = arith.constant {value} : index\n"
        return name

    def chosen(self, element: str, per_tile: Array) -> str:
        """A constant, or on several tiles one of several by the number of the tile."""
        found = ""
        for t, value in enumerate(per_tile):
            name = self.name()
            self.body += f"{name} = arith.constant {literal(element, value)}\n"
            if found:
                number, here, both = self.index(t), self.name(), self.name()
                self.body += f"{here} = arith.cmpi eq, %tile, {number} : index\n{both} = arith.select {here}, {name}, {found} : {element}\n"
                name = both
            found = name
        return found

    def load(self, values: Array, element: str) -> str:
        """Oracle values [tiles, ...] as a tensor."""
        base, name = self.base(to_host(element, values)), self.name()
        self.body += load(name, base, values.shape[1:], element=element)
        return name

    def store(self, value: str, shape: Sequence[int], element: str) -> None:
        """A tensor as the next output."""
        self.outputs.append((len(self.arrays), element))
        base = self.base(np.zeros((self.tiles, *shape), HOST[element]))
        self.body += store(value, base, tuple(shape), element=element)

    def run(self, policy: Policy | None = None) -> list[Array]:
        """Oracle values of the outputs."""
        run(kernel(self.arguments, self.body, str(self.tiles)), self.arrays, policy=policy)
        return [from_host(element, self.arrays[i]) for i, element in self.outputs]


class _CaseProgram(Program):
    """A program that applies cases, each to the elements of one shape on every tile."""

    def __init__(self, shape: tuple[int, ...], tiles: int) -> None:
        super().__init__(tiles)
        self.shape = shape

    def operation(self, case: Case, operands: Sequence[str], shape: tuple[int, ...] | None) -> list[str]:
        """The op applied; `shape` is None for scalars. Returns its results."""

        def typed(e: str) -> str:
            return e if shape is None else tensor(shape, e)

        name = self.name()
        count = len(case.gives)
        text = case.text.format(x=operands, t=[typed(e) for e in case.takes], to=[typed(e) for e in case.gives])
        results = [name] if count == 1 else [f"{name}_{k}" for k in range(count)]
        self.body += f"{', '.join(results)} = {text}\n"
        return results

    def on_tensors(self, case: Case, operands: Sequence[Array]) -> list[str]:
        return self.operation(case, self.loaded(case, operands), self.shape)

    def loaded(self, case: Case, operands: Sequence[Array]) -> list[str]:
        return [self.load(value, element) for element, value in zip(case.takes, operands, strict=True)]

    def in_body(self, case: Case, operands: Sequence[Array]) -> list[str]:
        names, result = self.loaded(case, operands), self.name()
        dims = ", ".join(f"d{i}" for i in range(len(self.shape)))
        kinds = ", ".join(['"parallel"'] * len(self.shape))
        maps = ", ".join([f"affine_map<({dims}) -> ({dims})>"] * (len(names) + len(case.gives)))
        outs = [self.name() for _ in case.gives]
        for out, element in zip(outs, case.gives, strict=True):
            self.body += f"{out} = tensor.empty() : {tensor(self.shape, element)}\n"
        given, made = ([tensor(self.shape, e) for e in elements] for elements in (case.takes, case.gives))
        arguments = [f"%b{self.serial}_{i}" for i in range(len(names) + len(outs))]
        typed = ", ".join(f"{a}: {e}" for a, e in zip(arguments, (*case.takes, *case.gives), strict=True))
        ins = f" ins({', '.join(names)} : {', '.join(given)})" if names else ""
        self.body += (
            f"{result}:{len(outs)} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f"{ins} outs({', '.join(outs)} : {', '.join(made)}) {{\n^bb0({typed}):\n"
        )
        found = self.operation(case, arguments[: len(names)], None)
        self.body += f"linalg.yield {', '.join(found)} : {', '.join(case.gives)}\n}} -> ({', '.join(made)})\n"
        return [f"{result}#{k}" for k in range(len(outs))]

    def on_scalars(self, case: Case, operands: Sequence[Array], known: bool) -> list[str]:
        """Element by element: taken out of the data, or constants that a tile selects by its number."""
        loaded = [] if known else self.loaded(case, operands)
        columns: list[list[str]] = [[] for _ in case.gives]
        for point in np.ndindex(*self.shape):
            scalars: list[str] = []
            indices = [] if known else [self.index(i) for i in point]
            for i, element in enumerate(case.takes):
                if known:
                    scalars.append(self.chosen(element, operands[i][(slice(None), *point)]))
                else:
                    scalars.append(self.name())
                    self.body += f"{scalars[-1]} = tensor.extract {loaded[i]}[{', '.join(indices)}] : {tensor(self.shape, element)}\n"
            for column, result in zip(columns, self.operation(case, scalars, None), strict=True):
                column.append(result)
        results = [self.name() for _ in columns]
        for name, column, element in zip(results, columns, case.gives, strict=True):
            self.body += f"{name} = tensor.from_elements {', '.join(column)} : {tensor(self.shape, element)}\n"
        return results


def apply(cases: Sequence[Case], operands: Sequence[Sequence[Array]], form: str, policy: Policy | None = None) -> list[list[Array]]:
    """What each case makes of its operands, arrays of shape [tiles, *shape]: a list of results per case."""
    tiles, *shape = operands[0][0].shape
    program = _CaseProgram(tuple(shape), tiles)
    for case, values in zip(cases, operands, strict=True):
        if form == "tensors":
            results = program.on_tensors(case, values)
        elif form == "body":
            results = program.in_body(case, values)
        else:
            results = program.on_scalars(case, values, form == "known")
        for result, element in zip(results, case.gives, strict=True):
            program.store(result, shape, element)
    found = iter(program.run(policy))
    return [[next(found) for _ in case.gives] for case in cases]


def verify(cases: Sequence[Case], operands: Sequence[Sequence[Array]], form: str) -> None:
    """Every case on its operands in a single program, each result against its oracle."""
    given = [case.defined(values) for case, values in zip(cases, operands, strict=True)]
    for case, values, found in zip(cases, given, apply(cases, given, form), strict=True):
        for element, got, want in zip(case.gives, found, case.wanted(values), strict=True):
            check_same(element, got, want, case.ulps, values, f"{case} ({form})")


def verify_edges(cases: Sequence[Case]) -> None:
    """All combinations of edge values on tensors and in bodies, a few of them as scalars."""
    for form in ("tensors", "body"):
        fitting = [case for case in cases if form in case.forms]
        for first in range(0, len(fitting), 16):
            part = fitting[first : first + 16]
            grids = [crossed(case.takes) for case in part]
            size = max(grid[0].size for grid in grids)
            verify(part, [[np.resize(o, (1, size)) for o in grid] for grid in grids], form)
    random = np.random.default_rng(1)
    for form, tiles in (("data", 1), ("known", 1), ("known", 3)):
        fitting = [case for case in cases if form in case.forms]
        fitting = fitting[:: 1 + len(fitting) // 24]  # each scalar is an op to compile
        if fitting:
            grids = [crossed(case.takes) for case in fitting]
            picked = [random.integers(0, grid[0].size, (tiles, 2)) for grid in grids]
            verify(fitting, [[o[at] for o in grid] for grid, at in zip(grids, picked, strict=True)], form)


def verify_random(cases: Sequence[Case], data: Any) -> None:
    """Some cases on random values of a random shape, on several tiles."""
    form = data.draw(st.sampled_from(FORMS))
    shape = data.draw(shapes if form in ("tensors", "body") else st.sampled_from([(), (1,), (3,), (2, 2), (1, 2, 1)]))
    tiles = data.draw(tile_counts)
    chosen = data.draw(st.lists(st.sampled_from(list(cases)), min_size=1, max_size=6))
    chosen = [c for c in chosen if form in c.forms]
    random = np.random.default_rng(data.draw(seeds))
    if chosen:
        verify(chosen, [[random_values(e, (tiles, *shape), random) for e in c.takes] for c in chosen], form)


def grouped(cases: Sequence[Case]) -> list[Any]:
    """The cases of each op, as parameters of a test."""
    names = list(dict.fromkeys(case.op for case in cases))
    return [pytest.param([c for c in cases if c.op == name], id=name) for name in names]
