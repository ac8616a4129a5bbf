"""What is divided: one op as loops and the operands that use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from ktir.cost.softmax import Sticks
from ktir.layout import Layout
from ktir.target import LANES


@dataclass(frozen=True)
class Loop:
    """A loop of `extent` iterations. `unit` is what may not be cut: 64 where the loop runs along an operand's stick, else 1.

    `even`: all parts must be equal, so that no core needs a mask for its own.
    """

    name: str
    extent: int
    unit: int = 1
    reduction: bool = False
    even: bool = False

    @property
    def blocks(self) -> int:
        """Units of the loop; the last one may be partial."""
        return -(-self.extent // self.unit)


@dataclass(frozen=True)
class Operand:
    """A tensor of the op: the loops that its dimensions run along, and the device layouts it may have, preferred one first.

    Without layouts nothing is known of its addresses, so no span is checked. `resident` = it lies in the scratchpad and moves nothing.
    `whole_bytes`: of the whole tensor, where its loops do not tell. `halo`: of a tensor that is seen through windows, per loop the
    positions beyond a part that the part reads too.
    """

    name: str
    loops: tuple[str, ...]
    layouts: tuple[Layout, ...] = ()
    element_bytes: int = 2
    output: bool = False
    resident: bool = False
    whole_bytes: int | None = None
    halo: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Scores:
    """The rows of scores of a softmax between matmuls: `sticks` of keys, and bytes of the scratchpad that a row takes, per stick of keys
    and for everything else. `batches`: the names of the batch loops, outer to inner. `outputs`: per matmul sticks of its result in a row,
    0 where the keys are these; its second operand is the input at that place.
    """

    sticks: int
    stick_bytes: int
    row_bytes: int
    batches: tuple[str, ...]
    outputs: tuple[int, ...]
    seen: tuple[Sticks, ...] = ()
    """Per 64 rows of `m` the sticks of keys that a mask leaves; empty where all see all of them."""


@dataclass(frozen=True)
class Problem:
    """One op, or one kernel around one op. `kind`: `matmul` (two operands share a reduction loop), `vector`, or `softmax` (`scores` say of
    what; the first inputs are the second operands of its matmuls, and `vector_cycles` are those of a stick of keys).

    `alone`: of a matmul, that its kernel multiplies nothing else, and stores what is computed of its result element by element.
    `vector_cycles` is what the vector unit needs per stick: of the result of a matmul (its epilogue), of the iteration space otherwise;
    `widening` what it needs for a block of a matmul's weights before the array can take it.
    Raises ValueError for loops and operands that do not fit together.
    """

    name: str
    loops: tuple[Loop, ...]
    operands: tuple[Operand, ...]
    kind: str = "matmul"
    vector_cycles: float = 1.0
    scores: Scores | None = None
    widening: float = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        names = [loop.name for loop in self.loops]
        if len(set(names)) != len(names):
            raise ValueError(f"problem '{self.name}' names a loop twice: {', '.join(names)}")
        if bad := next((loop for loop in self.loops if loop.extent < 1 or loop.unit < 1), None):
            raise ValueError(
                f"loop '{bad.name}' of problem '{self.name}' needs a positive extent and unit, but has {bad.extent} and {bad.unit}"
            )
        if self.kind not in ("matmul", "vector", "softmax"):
            raise ValueError(f"problem '{self.name}' is of kind '{self.kind}', but 'matmul', 'vector' and 'softmax' exist")
        if (self.kind == "softmax") != (self.scores is not None):
            raise ValueError(f"problem '{self.name}' of kind '{self.kind}' has {'no' if self.scores is None else 'rows of'} scores")
        for operand in self.operands:
            if unknown := set(operand.loops) - set(names):
                raise ValueError(f"operand '{operand.name}' of problem '{self.name}' uses an unknown loop '{min(unknown)}'")
            for layout in operand.layouts:
                if layout.size != tuple(self.loop(name).extent for name in operand.loops):
                    raise ValueError(f"layout of operand '{operand.name}' has size {layout.size}, which its loops do not have")
        if sum(o.output for o in self.operands) != 1:
            raise ValueError(f"problem '{self.name}' needs exactly one output")
        if self.kind == "matmul" and (len(self.inputs) < 2 or not all(r for r in (self.roles["n"], self.roles["k"]))):
            raise ValueError(f"problem '{self.name}' is no matmul: its first two operands share no reduction loop")

    def loop(self, name: str) -> Loop:
        """The loop of that name."""
        return next(loop for loop in self.loops if loop.name == name)

    @cached_property
    def inputs(self) -> tuple[Operand, ...]:
        """Operands that are read."""
        return tuple(o for o in self.operands if not o.output)

    @cached_property
    def output(self) -> Operand:
        """The operand that is written."""
        return next(o for o in self.operands if o.output)

    @cached_property
    def roles(self) -> dict[str, tuple[int, ...]]:
        """Of a matmul: loop numbers by role: b = in both operands, m = in the first, n = in the second, k = reduced."""
        first, second = self.inputs[0].loops, self.inputs[1].loops
        roles: dict[str, list[int]] = {"b": [], "m": [], "n": [], "k": []}
        for i, loop in enumerate(self.loops):
            if loop.reduction:
                roles["k"].append(i)
            elif loop.name in first:
                roles["b" if loop.name in second else "m"].append(i)
            elif loop.name in second:
                roles["n"].append(i)
        return {role: tuple(numbers) for role, numbers in roles.items()}

    @cached_property
    def work(self) -> int:
        """Iterations of the whole op: multiplications of a matmul."""
        return prod(loop.extent for loop in self.loops)


class MatmulShape(NamedTuple):
    """A matmul of so many rows, sticks of columns and sticks of the reduced loop; bytes of an element of its weights, and cycles in which
    the vector unit widens a block of them; `alone` as of a problem."""

    rows: int
    sticks: int
    depth: int
    weight_bytes: int = 2
    widening: int = 0
    alone: bool = False


def matmul(
    m: int,
    k: int,
    n: int,
    batch: int = 1,
    *,
    name: str = "matmul",
    layouts: str = "default",
    extra: Sequence[Operand] = (),
    vector_cycles: float = 1.0,
) -> Problem:
    """The matmul [batch, m, k] x [batch, k, n], f16, weights shared if `batch` is 1.

    `layouts`: `default` gives every operand the published default layout (sticks outermost), `free` offers rows outermost as well.
    """
    if layouts not in ("default", "free"):
        raise ValueError(f"layouts must be 'default' or 'free', but got '{layouts}'")
    loops = [Loop("m", m), Loop("n", n, LANES), Loop("k", k, LANES, reduction=True)]
    lead: tuple[str, ...] = ()
    if batch > 1:
        loops.insert(0, Loop("b", batch))
        lead = ("b",)

    def operand(label: str, rows: str, columns: str, output: bool = False) -> Operand:
        size = [{"b": batch, "m": m, "n": n, "k": k}[x] for x in (*lead, rows, columns)]
        published = [*range(1, len(size)), 0]
        orders = [published, sorted(published)] if layouts == "free" else [published]
        choices = tuple(Layout.ordered(size, order, len(size) - 1) for order in orders)
        return Operand(label, (*lead, rows, columns), choices, output=output)

    operands = (operand("a", "m", "k"), operand("w", "k", "n"), *extra, operand("c", "m", "n", True))
    return Problem(name, tuple(loops), operands, "matmul", vector_cycles, alone=batch == 1)


def pointwise(
    sizes: Sequence[int], inputs: int = 1, *, name: str = "pointwise", vector_cycles: float = 1.0, element_bytes: int = 2
) -> Problem:
    """A pointwise op on `inputs` tensors of one shape; the last dimension lies in sticks."""
    names = tuple(f"d{i}" for i in range(len(sizes)))
    loops = tuple(Loop(x, size, LANES if i == len(sizes) - 1 else 1) for i, (x, size) in enumerate(zip(names, sizes, strict=True)))
    operands = [Operand(f"x{i}", names, element_bytes=element_bytes) for i in range(inputs)]
    return Problem(name, loops, (*operands, Operand("y", names, element_bytes=element_bytes, output=True)), "vector", vector_cycles)
