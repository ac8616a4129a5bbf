"""Divided -> tiled KTIR: blocks of rows that fit the scratchpad, and the loops of matmuls.

A kernel becomes a loop per batch axis, one position per trip, and inside them one over blocks of R rows of the core's share, with the same
trip counts on every core. A load stands at the outermost loop on whose counter it depends. `tile_plan` decides, `blocks` and
`contractions` build what a block consists of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.attributes.table import copy_kept
from ktir.analysis.axes import SECOND_OPERAND
from ktir.analysis.partial_sums import contribution, parts_of, summed
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic, clone_ops
from ktir.mlir import func, ir, scf
from ktir.passes.tiling.blocks import Blocks, Part, tile_of
from ktir.passes.tiling.contractions import Contractions
from ktir.passes.tiling.online_plan import KeyedPlan
from ktir.passes.tiling.online_softmax import OnlineSoftmax
from ktir.passes.tiling.tile_hints import hinted_plan
from ktir.passes.tiling.tile_plan import is_stored_fill
from ktir.passes.tiling.tile_views import direct, index_constant, is_block
from ktir.pipeline import Pass
from ktir.target import Target


@dataclass(frozen=True)
class TilePass(Pass):
    """Tile each kernel over its rows; `rows` fixes the block size (even), 0 chooses the largest that fits `lx_bytes`.

    Expects: the divided level. Guarantees: the tiled level; working sets fit the scratchpad budget.
    """

    name: ClassVar[str] = "ktir-tile"
    description: ClassVar[str] = "divided -> tiled: row blocks that fit LX, matmul loops, softmax over blocks of keys"
    tolerance: ClassVar[float] = 2.0**-9  # of kernels with an online softmax: it rounds other weights than the plain one, and sums in parts
    rounds_terms: ClassVar[bool] = True
    rows: int = 0
    target: str = ""
    lx_bytes: int | None = None
    online_softmax: str = "auto"  # softmax over blocks of keys: auto (where it is cheaper or needed), always, never
    num_tiles: str = ""  # blocks that a core's rows are cut into, as in `m=4`; else as a `ktir.hint` of num_tiles_per_dim says

    def __post_init__(self) -> None:
        if self.online_softmax not in ("auto", "always", "never"):
            raise ValueError(f"'online-softmax' is auto, always or never, but got '{self.online_softmax}'")

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, "divided")
        target = machine(module, self.target, lx_bytes=self.lx_bytes)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.work" in op.attributes:
                _Tiler(op, self, target).tile()
        set_level(module, "tiled")

    def allowed(self, module: ir.Module) -> float:
        """Nothing, unless a kernel has an online softmax."""
        return max((ir.FloatAttr(f.attributes[TOLERANCE]).value for f in module.body.operations if TOLERANCE in f.attributes), default=0.0)


TOLERANCE = "ktir.tolerance"
"""On a kernel: the relative difference from its divided form."""

_LAID_ASIDE = (
    *SECOND_OPERAND,
    "func.return",
    "ktdp.construct_access_tile",
    "ktdp.construct_indirect_access_tile",
    "tensor.empty",
    "linalg.fill",
    "ktdp.inter_tile_produce",
)
"""Ops that are built where what they are for is built."""


class _Tiler:
    def __init__(self, source: func.FuncOp, options: TilePass, target: Target) -> None:
        self.source = source
        self.options = options
        self.plan = hinted_plan(source, options.rows, target, options.online_softmax, options.num_tiles, options.remark)
        self.ops = self.plan.ops
        self.blocks = Blocks(self.plan)
        self.contractions = Contractions(self.blocks)
        self.online = OnlineSoftmax(self.plan, self.blocks) if isinstance(self.plan, KeyedPlan) else None
        self.mapping = self.blocks.mapping
        if self.plan.part is not None:
            self.blocks.keyed = set(self.plan.part.values)

    def tile(self) -> None:
        source = self.source
        old = source.regions[0].blocks[0]
        name = source.name.value
        for resident in self.plan.residents:
            self.options.remark(
                "passed",
                f"second operand stays in LX, {resident.bytes} bytes: saves loading {resident.saved} bytes again",
                resident.contraction.location,
            )
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(name + "_tiled", ([a.type for a in old.arguments], []))
        block = function.add_entry_block([source.location] * len(old.arguments))
        copy_kept(source, function)
        if self.online is not None:
            function.attributes[TOLERANCE] = ir.FloatAttr.get(ir.F64Type.get(), self.options.tolerance)
        self.mapping.update(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), source.location:
            self._prologue()
            self._nest(list(self.plan.loops.items()), 0)
            func.ReturnOp([])
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    def _prologue(self) -> None:
        """Clone addresses and the views that are used as they are; load what no loop changes."""
        used = self._block_views()
        for op in self.ops:
            if op.name == "ktdp.construct_memory_view":
                if op.results[0] in used:
                    clone_ops([op], self.mapping)
            elif op.name == "ktdp.load":
                self._load_at(op, 0)
            elif op.name == "linalg.fill" and is_stored_fill(op) and op.results[0] not in self.blocks.keyed:
                with op.location:
                    self.mapping[op.results[0]] = self.blocks.init(op.results[0])
            elif op.name not in (*_LAID_ASIDE, "ktdp.store", "linalg.generic", "ktdp.inter_tile_reduce"):
                clone_ops([op], self.mapping)

    def _block_views(self) -> set[ir.Value]:
        """Views of the divided level that are views of blocks as they stand."""
        found = set()
        for op in self.ops:
            if op.name in ("ktdp.load", "ktdp.store") and direct(tile := tile_of(op)):
                view = tile.operands[0]
                value = op.results[0] if op.name == "ktdp.load" else op.operands[0]
                if is_block(view.owner.opview, self.blocks.place(value)):
                    found.add(view)
        return found

    def _nest(self, loops: list[tuple[int, int]], depth: int) -> None:
        """The loops over `loops`, and inside them that over blocks of rows; `depth` loops are open."""
        if not loops:
            self._rows()
            return
        (axis, trips), *others = loops
        loop = scf.ForOp(*(index_constant(v) for v in (0, trips, 1)))
        with ir.InsertionPoint(loop.body):
            self.blocks.position[axis] = loop.induction_variable
            for op in self.ops:
                if op.name == "ktdp.load":
                    self._load_at(op, depth + 1)
            self._nest(others, depth + 1)
            scf.YieldOp([])

    def _rows(self) -> None:
        """The loop over blocks of rows, the first one before it where the others use what that leaves in the scratchpad."""
        start = 0
        if self.plan.peels:
            start = self.plan.block_rows
            before = dict(self.mapping)
            self._block()
            self.mapping.clear()
            self.mapping.update(before)
        loop = scf.ForOp(*(index_constant(v) for v in (start, self.plan.share, self.plan.block_rows)))
        with ir.InsertionPoint(loop.body):
            self.blocks.row = loop.induction_variable
            self._block()
            scf.YieldOp([])

    def _block(self) -> None:
        """A block of rows."""
        if self.online is not None:
            self.online.build(self._op)
        elif self.plan.part is not None:
            self._in_parts(self.plan.part.sticks, self.plan.part_sticks)
        else:
            self._whole_rows()

    def _whole_rows(self) -> None:
        for op in self.ops:
            with op.location:
                self._op(op)

    def _in_parts(self, sticks: int, count: int) -> None:
        """The block, `count` of its sticks at a time, then what is left of them."""
        trips, rest = divmod(sticks, count)
        loop = scf.ForOp(*(index_constant(v) for v in (0, trips * count, count)))
        with ir.InsertionPoint(loop.body):
            self._part(Part(loop.induction_variable, count))
            scf.YieldOp([])
        if rest:
            self._part(Part(trips * count, rest))

    def _part(self, part: Part) -> None:
        outside = dict(self.mapping)
        self.blocks.keys = part
        self._whole_rows()
        self.mapping.clear()
        self.mapping.update(outside)

    def _load_at(self, op: ir.Operation, depth: int) -> None:
        """Load a value if it belongs into the innermost one of `depth` open batch loops."""
        value = op.results[0]
        if value in self.blocks.keyed:
            return
        with op.location:
            if self.online is not None and self.online.products.takes(value):
                self.online.products.load_resident(value, depth)
            elif value in self.plan.second_operands:
                self.contractions.load_resident(value, depth)
            elif value not in self.plan.streamed and self.plan.depth(value, self.plan.trips(self.plan.block_rows)) == depth:
                self.blocks.load(op)

    def _op(self, op: ir.Operation) -> None:
        plan = self.plan
        if op.name == "ktdp.load":
            value = op.results[0]
            if value not in plan.second_operands and value not in plan.streamed and value not in self.mapping:
                self.blocks.load(op)
        elif op.name == "ktdp.store":
            if op.operands[0] not in plan.stored:
                self.blocks.store(op)
        elif op.name == "linalg.fill" and is_stored_fill(op) and op.results[0] in self.blocks.keyed:
            self.mapping[op.results[0]] = self.blocks.init(op.results[0])
        elif op.name == "ktdp.inter_tile_reduce":
            partial = contribution(op.operands[0].owner.operation)
            self.mapping[op.results[0]] = summed(self.mapping[partial], plan.cores, parts_of(op))
        elif op.name == "linalg.generic" and op not in plan.fused.values():
            g = Generic(op)
            if g.is_contraction:
                self.contractions.build(g)
            else:
                inputs = [self.mapping[v] for v in g.inputs]
                self.mapping[op.results[0]] = self.blocks.rebuilt(g, inputs, self.blocks.init(g.init))
