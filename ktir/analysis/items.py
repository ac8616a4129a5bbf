"""The ops and stores of a program as plain data: what forming kernels and dividing work need to know of them.

An item has loops, and per dim of each of its tensors the loop that walks it, in physical shapes [sticks, rows.., lanes]. `items_of` reads
items from laid-out IR; `ktir-plan` makes those that its choice of layouts would lead to, before there is such IR.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.attributes.plan_attributes import kernel_of
from ktir.analysis.axes import row_loops, second_operand_source
from ktir.analysis.memory_order import Region, regions
from ktir.analysis.seen_keys import keys_of_rows
from ktir.analysis.softmax import softmaxes
from ktir.cost.bodies import stick_cycles, widening_cycles
from ktir.cost.problem import MatmulShape
from ktir.cost.softmax import Sticks
from ktir.dialects import ktdp
from ktir.dialects.byte_pairs import makes_pairs
from ktir.dialects.structured import Generic
from ktir.mlir import ir, is_a, linalg
from ktir.target import Target

MANY_KEYS = 128
"""Sticks of keys from which on a softmax is looked for: fewer fit the scratchpad as a whole."""
_PART = 8
"""Sticks of keys that a block has at most, as far as forming kernels goes."""

Walk = tuple[int | None, ...]
"""Per dim of a tensor the loop that walks it; None: no loop does."""


@dataclass(eq=False)
class Tensor:
    """A tensor in sticks: [sticks, rows.., lanes]."""

    shape: tuple[int, ...]
    bytes: int
    name: Hashable = None
    """What stands for it where the item comes from."""
    loaded: bool = False
    """Whether it is read from memory."""
    made: bool = False
    """Whether an item makes it; a tensor that is neither loaded nor made is a constant."""
    indirect: bool = False
    """Whether a gather reads it; `index_dims`: dims along which it reads its indices."""
    index_dims: tuple[int, ...] = ()
    regions: tuple[Region, ...] = ()
    """Memory that it is read from and that the program writes."""
    in_parts: bool = False
    """Whether a kernel may see its sticks some at a time, as a softmax does with very many keys."""
    moved: int = 0
    """Bytes that a load of it moves where it lies otherwise in memory; `pieces`: sticks or elements that then come one by one."""
    pieces: int = 0
    sharing: int = 1
    """Rows that share what is moved; blocks of fewer rows move it again."""
    strides: tuple[int, ...] = ()
    """Of what is loaded directly: elements of memory from one position of a dim to the next."""

    def covered(self, extents: Sequence[int]) -> int:
        """Bytes of a load of so many positions along each row dim, where these overlap in memory: of all rows that they lie in."""
        steps = [(abs(s), n) for s, n in zip(self.strides[1:-1], extents, strict=True) if s and n > 1]
        unit = min((s for s, _ in steps), default=1)
        rows = 1 + sum(s // unit * (n - 1) for s, n in steps)
        return self.bytes // self.row_count * min(rows, prod(extents))

    @property
    def loaded_bytes(self) -> int:
        """Bytes that are loaded of it, each once."""
        return self.covered(self.shape[1:-1]) if self.strides else self.bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of what a kernel has of a row at once."""
        sticks = self.shape[0]
        return self.bytes // self.row_count * (min(_PART, sticks) if self.in_parts else sticks) // sticks

    @property
    def rows(self) -> list[int]:
        """Extents of the rows; none where there is a single position."""
        rows = list(self.shape[1:-1])
        return rows if prod(rows) > 1 else []

    @property
    def row_count(self) -> int:
        """Rows of all dims together."""
        return prod(self.shape[1:-1])


@dataclass(eq=False)
class _Item:
    number: int
    sources: list[Tensor]
    """What it reads. A contraction's second one is the whole tensor, before it is padded and split into blocks."""
    value: Tensor
    """What it makes, or stores."""
    producers: list[Op] = field(default_factory=list)
    reads: list[tuple[int, Region]] = field(default_factory=list)
    """Operands that are read from memory that the program writes; of a store its indices, as operand -1."""
    writes: list[Region] = field(default_factory=list)
    op: ir.Operation | None = None
    """Of an item that was read from IR."""
    wish: int | None = None
    """The kernel that a plan puts it into."""

    def __post_init__(self) -> None:
        self.ancestors: frozenset[int] = frozenset({self.number}).union(*(p.ancestors for p in self.producers))


@dataclass(eq=False)
class Store(_Item):
    """A store of a tensor to memory. `moved`, `pieces` and `sharing`: as of a tensor that is loaded."""

    moved: int = 0
    pieces: int = 0
    sharing: int = 1
    indirect: bool = False
    """Whether it is a scatter; `index_dims`: dims along which it reads indices."""
    index_dims: tuple[int, ...] = ()
    ordered: bool = False
    """Whether its indices may name an element several times."""


@dataclass(eq=False, kw_only=True)
class Op(_Item):
    """An op that makes a tensor."""

    walks: list[Walk]
    """Per source, then of the result, the loop of each dim."""
    row_loops: tuple[int, ...]
    work: int
    """Cycles of the vector unit per stick."""
    positional: bool = False
    """Whether what a stick is computed of depends on where it stands: a body computes with its position, or two sticks become one."""

    @cached_property
    def extents(self) -> dict[int, int]:
        """Trips of the row loops."""
        found = {loop: n for loop, n in zip(self.walks[-1], self.value.shape, strict=True) if loop is not None}
        return {loop: found[loop] for loop in self.row_loops}

    @cached_property
    def loops(self) -> list[int]:
        """The row loops; none where all have one trip."""
        return list(self.row_loops) if prod(self.extents.values()) > 1 else []

    def is_local(self, sticks: int) -> bool:
        """Whether each stick of `sticks` sticks is computed from the same stick of the operands."""
        return False


class Pointwise(Op):
    """An op without a reduced loop."""

    def is_local(self, sticks: int) -> bool:
        """As of any op; a body that knows its position would see that of a core's part."""
        return self.value.shape[0] == sticks and not self.positional and all(walk[0] in (0, None) for walk in self.walks)


@dataclass(eq=False, kw_only=True)
class Reduction(Op):
    """A reduction of rows. `find`: how to find out what they see."""

    find: Callable[[], tuple[Sticks, ...]] | None = None

    @cached_property
    def seen(self) -> tuple[Sticks, ...]:
        """Of largest scores: per 64 rows of the innermost row loop the sticks of keys that a mask leaves, by positions; empty for all."""
        return () if self.find is None else self.find()


@dataclass(eq=False, kw_only=True)
class Contraction(Op):
    """A matmul."""

    matmul_row: int | None
    """The innermost row loop that is no batch loop, None if it has no rows."""
    has_batches: bool
    widening: int = 0
    """Cycles in which the vector unit widens a block of weights."""

    @property
    def matmul_extents(self) -> tuple[int, int, int]:
        """Rows (those of all row loops), sticks of columns and sticks of the reduced loops."""
        return self.value.row_count, self.value.shape[0], self.sources[0].shape[0] * prod(self.taps.values())

    @property
    def matmul_shape(self) -> MatmulShape:
        """These, and its weights."""
        weights = self.sources[1]
        return MatmulShape(*self.matmul_extents, weights.bytes // max(prod(weights.shape), 1), self.widening)

    @cached_property
    def taps(self) -> dict[int, int]:
        """Dims of the first operand that walk the places of a window, which are summed up, and their extents."""
        dims = list(enumerate(zip(self.sources[0].shape, self.walks[0], strict=True)))[1:-1]
        return {d: n for d, (n, loop) in dims if loop is not None and loop not in self.row_loops}


Item = Op | Store
"""What kernels are formed of."""


def is_indirect(access: ir.Operation) -> bool:
    """Whether a load or store is a gather or scatter."""
    return is_a(access.operands[-1].owner, ktdp.ConstructIndirectAccessTileOp)


def _view(access: ir.Operation) -> ktdp.ConstructMemoryViewOp:
    view = access.operands[-1].owner.operands[0].owner.opview
    assert isinstance(view, ktdp.ConstructMemoryViewOp)
    return view


def index_dims(access: ir.Operation) -> tuple[int, ...]:
    """Dims of the tile of a load or store along which an index view is read."""
    if not is_indirect(access):
        return ()
    maps = [m for m, view in access.operands[-1].owner.opview.subscripts if view is not None]
    return tuple(sorted({d for m in maps for e in m.results for d in _dims(e)}))


def _dims(e: ir.AffineExpr) -> set[int]:
    if isinstance(e, ir.AffineDimExpr):
        return {ir.AffineDimExpr(e).position}
    return _dims(e.lhs) | _dims(e.rhs) if isinstance(e, ir.AffineBinaryExpr) else set()


def items_of(ops: Sequence[ir.Operation], target: Target) -> list[Item]:
    """The ops and stores of a laid-out function, in order."""
    return list(_Reader(ops, target).items())


class _Reader:
    def __init__(self, ops: Sequence[ir.Operation], target: Target) -> None:
        self.target = target
        self.ops = [op for op in ops if is_a(op, linalg.GenericOp, ktdp.StoreOp)]
        self.written = {r.argument for op in self.ops if is_a(op, ktdp.StoreOp) for r in regions(op)[:1]}
        self.results = {op.results[0] for op in self.ops if is_a(op, linalg.GenericOp)}
        self.made: dict[ir.Value, Op] = {}
        self.tensors: dict[ir.Value, Tensor] = {}
        self.in_parts = {v for softmax in softmaxes(ops, MANY_KEYS) for v in softmax.keyed}

    def items(self) -> Iterator[Item]:
        for number, op in enumerate(self.ops):
            item = self._op(number, op) if is_a(op, linalg.GenericOp) else self._store(number, op)
            item.wish = kernel_of(op)
            yield item

    def _tensor(self, value: ir.Value) -> Tensor:
        if value not in self.tensors:
            loaded = is_a(value.owner, ktdp.LoadOp)
            load = value.owner.operation if loaded else None
            self.tensors[value] = Tensor(
                tuple(ir.RankedTensorType(value.type).shape),
                tensor_bytes(value),
                value,
                loaded,
                value in self.results,
                load is not None and is_indirect(load),
                () if load is None else index_dims(load),
                () if load is None else tuple(r for r in regions(load) if r.argument in self.written),
                value in self.in_parts,
                strides=() if load is None or is_indirect(load) else tuple(s for s in _view(load).strides if isinstance(s, int)),
            )
        return self.tensors[value]

    def _op(self, number: int, op: ir.Operation) -> Op:
        g = Generic(op)
        loops = row_loops(g)
        values = list(g.inputs)
        walks = [tuple(g.loop_of(i, d) for d in range(len(m.results))) for i, m in enumerate(g.maps)]
        kind: Callable[..., Op] = Pointwise if g.is_pointwise else partial(Reduction, find=partial(keys_of_rows, g))
        if (contraction := g.contraction) is not None:
            values[1] = second_operand_source(g)
            walks[1] = (*(loop if loop in loops else None for loop in walks[1][:-3]), None, None)
            row = contraction.rows[-1] if contraction.rows else None
            widening = widening_cycles(g, self.target)
            kind = partial(Contraction, matmul_row=row, has_batches=bool(contraction.batch), widening=widening)
        sources = [self._tensor(v) for v in values]
        self.made[op.results[0]] = item = kind(
            number,
            sources,
            self._tensor(op.results[0]),
            [self.made[v] for v in values if v in self.made],
            [(i, r) for i, source in enumerate(sources) for r in source.regions],
            op=op,
            walks=walks,
            row_loops=tuple(loops),
            work=stick_cycles(g, self.target),
            positional=makes_pairs(g) or any(is_a(o, linalg.IndexOp) for o in g.body_ops),
        )
        return item

    def _store(self, number: int, op: ir.Operation) -> Store:
        value, (written, *indices) = op.operands[0], regions(op)
        source = self._tensor(value)
        return Store(
            number,
            [source],
            source,
            [self.made[value]] if value in self.made else [],
            [*((0, r) for r in source.regions), *((-1, r) for r in indices if r.argument in self.written)],
            [written],
            op,
            indirect=is_indirect(op),
            index_dims=index_dims(op),
            ordered="ktir.ordered" in op.attributes,
        )
