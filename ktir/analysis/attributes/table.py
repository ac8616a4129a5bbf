"""One declaration per attribute of ours: its kind, the ops that carry it, the levels at which it may stand, and what it says.

An attribute whose name does not begin with `ktir.` is none of ours, but for `grid`, which KTIR itself has.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ktir.analysis.attributes import kinds
from ktir.analysis.attributes.kinds import Kind
from ktir.dialects import ktdp
from ktir.dialects.module_level import Level, since
from ktir.mlir import ir, names, scf


class On(Enum):
    """What carries an attribute, besides ops named one by one."""

    MODULE = "module"
    FUNCTION = "function"
    KERNEL = "kernel"
    """A function with `ktir.rows` or `grid`."""
    ARGUMENT = "argument"
    OP = "op"
    """Any op of a function."""


_ALL = tuple(Level)
_OF_HOST = (Level.LOGICAL, Level.FLAT)
_FROM_LAID_OUT = since(Level.LAID_OUT)
_KERNELS = since(Level.LAID_OUT, Level.ALLOCATED)
_DIVIDED = since(Level.DIVIDED, Level.ALLOCATED)
_VIEW = names(ktdp.ConstructMemoryViewOp)


@dataclass(frozen=True)
class Declared:
    """One attribute. `kept`: a function that is built anew in place of another gets it from that one."""

    name: str
    kind: Kind
    on: tuple[On | str, ...]
    levels: tuple[Level, ...]
    meaning: str
    kept: bool = False

    @property
    def carriers(self) -> str:
        """What carries it, in words: `a kernel`, `'ktdp.store'`."""
        return " or ".join(f"'{x}'" if isinstance(x, str) else f"{'an' if x.value[0] in 'ao' else 'a'} {x.value}" for x in self.on)

    @property
    def stands(self) -> str:
        """The levels at which it may stand, in words."""
        names = [str(level) for level in self.levels]
        return f"the {names[0]} level" if len(names) == 1 else f"the {', '.join(names[:-1])} and {names[-1]} levels"


_DECLARED = (
    Declared("ktir.level", kinds.levels(Level), (On.MODULE,), _ALL, "How far the module has been lowered."),
    Declared(
        "ktir.target",
        kinds.TARGET,
        (On.MODULE,),
        _ALL,
        "The machine that the module is compiled for: a preset, or the figures in which it differs from the datasheet's.",
    ),
    Declared(
        "ktir.hosts",
        kinds.HOST_TYPES,
        (On.MODULE,),
        _FROM_LAID_OUT,
        "The tensors that the caller gives, in the order of its arguments; a memref where elements do not lie one after the other.",
    ),
    Declared(
        "ktir.ranges",
        kinds.RANGES,
        (On.MODULE,),
        _ALL,
        "Per entry function and argument of the caller the integers for which the program is proved: 'low' to 'high', in 'bits'; 'spare' "
        "stands for what a launch does not read.",
    ),
    Declared("grid", kinds.GRID, (On.KERNEL,), _ALL, "The compute tiles that run the function, in one to three dimensions.", kept=True),
    Declared(
        "ktir.rows",
        kinds.EXTENTS,
        (On.KERNEL,),
        _KERNELS,
        "Extents of the row loops that its ops share, outer to inner.",
        kept=True,
    ),
    Declared(
        "ktir.columns", kinds.COUNT, (On.KERNEL,), (Level.LAID_OUT,), "Sticks of every result of a kernel whose columns may be dealt out."
    ),
    Declared(
        "ktir.plan",
        kinds.PLAN,
        (On.FUNCTION,),
        (Level.FLAT, Level.LAID_OUT),
        "What is planned, per kernel to be: 'columns', the sticks that are dealt out (0: none are), and 'work', how the kernel is divided, "
        "with 'sums' and 'depth_share' where cores share the reduced loop of its matmuls.",
    ),
    Declared("ktir.plan", kinds.PLANNED, (On.KERNEL,), (Level.LAID_OUT,), "What is planned for the kernel, up to its division."),
    Declared(
        "ktir.work",
        kinds.WORK,
        (On.KERNEL,),
        _DIVIDED,
        "Into how many parts sticks, each row loop and lanes are split over cores, and the extent of one core's part.",
        kept=True,
    ),
    Declared("ktir.sums", kinds.POSITIVE, (On.KERNEL,), _DIVIDED, "How many cores share the reduced loop of its matmuls.", kept=True),
    Declared(
        "ktir.residents",
        kinds.RESIDENTS,
        (On.KERNEL,),
        _DIVIDED,
        "What lies in the scratchpad while it runs, its own accesses or not; below the lowest is room for its own tensors.",
        kept=True,
    ),
    Declared("ktir.exchange", kinds.UNIT, (On.KERNEL,), _DIVIDED, "The kernel only moves what stays in the scratchpad from core to core."),
    Declared(
        "ktir.way",
        kinds.STRING,
        (On.KERNEL,),
        (Level.LOGICAL,),
        "Of a kernel by hand, which states no level yet: 'lift' it to this one, 'pin' it, or 'auto', the faster of both.",
    ),
    Declared(
        "ktir.tolerance",
        kinds.NUMBER,
        (On.KERNEL,),
        (Level.LOGICAL, Level.TILED),
        "The relative difference that tiling may have made in the kernel's values, by the online form of a softmax; of a kernel by hand, "
        "that which its author allows a lift to make.",
    ),
    Declared("ktir.lx_bytes", kinds.COUNT, (On.KERNEL,), _DIVIDED, "Bytes of a core's scratchpad that it uses, from address 0."),
    Declared("ktir.name", kinds.STRING, (On.ARGUMENT,), _ALL, "The name of the caller's argument, unlike those of the others."),
    Declared("ktir.role", kinds.ROLE, (On.ARGUMENT,), _ALL, "What the argument is for."),
    Declared("ktir.type", kinds.TENSOR_TYPE, (On.ARGUMENT,), _OF_HOST, "Shape and element type of the tensor that the caller gives."),
    Declared(
        "ktir.strides",
        kinds.STRIDES,
        (On.ARGUMENT,),
        _OF_HOST,
        "Strides of that tensor, in elements; without it the elements lie one after the other.",
    ),
    Declared(
        "ktir.lies",
        kinds.POSITIVE,
        (On.ARGUMENT,),
        _OF_HOST,
        "Elements of that tensor from one to the next in a stick of the form that it has on the card; another form takes a relayout.",
    ),
    Declared("ktir.layout", kinds.LAYOUT, (On.ARGUMENT,), _FROM_LAID_OUT, "How the tensor lies in the device's memory, in sticks."),
    Declared("ktir.layout", kinds.LAYOUT, _VIEW, (Level.LAID_OUT,), "How the tensor that lies there does so."),
    Declared("ktir.host", kinds.HOST, (On.ARGUMENT,), _FROM_LAID_OUT, "Which elements of which argument of the caller it holds."),
    Declared(
        "ktir.stick", kinds.DIMENSIONS, (On.OP,), (Level.FLAT,), "Per tensor of the op, the result last, the dimension in the stick, or -1."
    ),
    Declared(
        "ktir.kernel", kinds.COUNT, (On.OP,), (Level.FLAT, Level.LAID_OUT), "The number of the op's kernel in the plan of its function."
    ),
    Declared(
        "ktir.ordered",
        kinds.UNIT,
        names(ktdp.StoreOp),
        _ALL,
        "The store may name an element several times; what is stored last, in row-major order of the tile, stays.",
    ),
    Declared("ktir.parts", kinds.POSITIVE, names(ktdp.InterTileReduceOp), (Level.DIVIDED,), "How many cores' partial sums are added up."),
    Declared("ktir.resident", kinds.RESIDENT, _VIEW, _DIVIDED, "What stays in the scratchpad and is seen through this view."),
    Declared("ktir.rotate", kinds.ROTATE, _VIEW, (Level.ALLOCATED,), "The buffer changes place with every trip of the loops around it."),
    Declared(
        "ktir.per_corelet",
        kinds.UNIT,
        _VIEW,
        (Level.ALLOCATED,),
        "Each corelet makes and reads a tensor of its own; the second one's lies behind the first one's.",
    ),
    Declared(
        "ktir.acc",
        kinds.ACC,
        names(scf.ForOp),
        (Level.ALLOCATED,),
        "The unit in whose accumulator the carried tensor lives.",
    ),
    Declared("ktir.acc", kinds.ACC, _VIEW, (Level.ALLOCATED,), "The unit that keeps a running value there."),
)

TABLE: dict[str, list[Declared]] = {}
"""Every attribute, by its name: a declaration per kind of op, where they differ."""

for _one in _DECLARED:
    TABLE.setdefault(_one.name, []).append(_one)

KEPT = tuple(declared.name for declared in _DECLARED if declared.kept)
"""What a function that is built anew gets from the one that it stands for."""


def copy_kept(source: ir.Operation | Any, made: ir.Operation | Any) -> None:
    """Give a function that takes the place of another what is kept of that one's attributes."""
    for name in KEPT:
        if name in source.attributes:
            made.attributes[name] = source.attributes[name]
