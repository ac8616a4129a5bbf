"""Divided -> tiled KTIR: blocks of rows that fit the scratchpad, and the loops of matmuls.

A kernel becomes a loop per batch axis, one position per trip, and inside them one over blocks of R rows of the core's share, with the same
trip counts on every core. A load stands at the outermost loop on whose counter it depends. What a kernel is (`tile_facts`) and what is
decided for it (`tile_plan`, `online_plan`, `tile_hints`) is data; `tile_writer` builds what the plan says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.mlir import func, ir
from ktir.passes.tiling.plan.tile_facts import facts_of
from ktir.passes.tiling.tile_hints import OnlineSoftmax, Wishes, decide
from ktir.passes.tiling.tile_writer import TOLERANCE, write
from ktir.pipeline import AtLeast, Pass
from ktir.target import Target


@dataclass(frozen=True)
class TilePass(Pass):
    """Tile each kernel over its rows; `rows` fixes the block size (even), 0 chooses the largest that fits `lx_bytes`.

    Expects: the divided level. Guarantees: the tiled level; working sets fit the scratchpad budget.
    """

    name: ClassVar[str] = "ktir-tile"
    description: ClassVar[str] = "divided -> tiled: row blocks that fit LX, matmul loops, softmax over blocks of keys"
    tolerance: ClassVar[float] = (
        2.0**-9
    )  # of kernels that sum in parts: an online softmax, which rounds other weights than the plain one, and products
    rounds_terms: ClassVar[bool] = True
    rows: Annotated[int, AtLeast(0)] = 0
    target: str = ""
    lx_bytes: int | None = None
    online_softmax: OnlineSoftmax = "auto"  # softmax over blocks of keys: auto (where it is cheaper or needed), always, never
    num_tiles: str = ""  # blocks that a core's rows are cut into, as in `m=4`; else as a `ktir.hint` of num_tiles_per_dim says

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, Level.DIVIDED)
        target = machine(module, self.target, lx_bytes=self.lx_bytes)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.work" in op.attributes:
                self.tile(op, target)
        set_level(module, Level.TILED)

    def tile(self, kernel: func.FuncOp, target: Target) -> None:
        """Rewrite one kernel: what it is, what is decided for it, what is written."""
        facts = facts_of(kernel)
        plan = decide(facts, Wishes(self.rows, self.online_softmax, self.num_tiles), target)
        if plan.reason and facts.softmax is not None:
            self.remark("passed", plan.reason, facts.softmax.most.op.location)
        for resident in plan.residents:
            self.remark(
                "passed",
                f"second operand stays in LX, {resident.bytes} bytes: saves loading {resident.saved} bytes again",
                resident.matmul.op.location,
            )
        write(facts, plan, self.tolerance)

    def allowed(self, module: ir.Module) -> float:
        """Nothing, unless a kernel sums in parts."""
        return max((ir.FloatAttr(f.attributes[TOLERANCE]).value for f in module.body.operations if TOLERANCE in f.attributes), default=0.0)
