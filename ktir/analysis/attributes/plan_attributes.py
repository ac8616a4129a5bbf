"""How `ktir-plan` writes decisions down, and how the passes after it read them.

ktir.stick   on an op of the flat logical level: per tensor, the result last, the dimension in the stick, -1 for none
ktir.kernel  on an op or store, up to the forming of kernels: the number of its kernel in the plan
ktir.plan    on the function: per kernel `columns`, the sticks that are dealt out (0: none are), and `work`, how it is divided
                 (with `sums` and `depth_share` where cores share the reduced loop of its matmuls);
             on a kernel, up to the division: its entry
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ktir.analysis.attributes.verify import require_kind
from ktir.diagnostics import KtirError
from ktir.dialects import ktir as kt
from ktir.mlir import func, integer_attribute, ir
from ktir.target import LANES

STICK = "ktir.stick"
KERNEL = "ktir.kernel"
PLAN = "ktir.plan"


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel of a plan: `splits` = parts of the columns and of each axis, `tile` = shares of them; empty where none was legal."""

    columns: int
    splits: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    sums: int = 1
    """Cores that share the reduced loop of matmuls; `depth_share`: sticks of it of one core."""
    depth_share: int = 0

    def attribute(self) -> ir.Attribute:
        """As an attribute."""
        entry: dict[str, ir.Attribute] = {"columns": integer_attribute(self.columns)}
        if self.splits:
            entry["work"] = kt.WorkAttr.build([*self.splits, 1], [*self.tile, LANES])
        if self.sums > 1:
            entry |= {"sums": integer_attribute(self.sums), "depth_share": integer_attribute(self.depth_share)}
        return ir.DictAttr.get(entry)

    @staticmethod
    def of(attribute: ir.Attribute) -> PlannedKernel:
        """What an attribute says."""
        entry = ir.DictAttr(attribute)
        columns, sums, depth = (ir.IntegerAttr(entry[n]).value if n in entry else 0 for n in ("columns", "sums", "depth_share"))
        if "work" not in entry:
            return PlannedKernel(columns)
        work = kt.WorkAttr(entry["work"])
        return PlannedKernel(columns, tuple(work.splits)[:-1], tuple(work.tile)[:-1], max(sums, 1), depth)


def write_stick(op: ir.Operation, dims: Sequence[int | None]) -> None:
    """Note what lies in the stick at an op."""
    op.attributes[STICK] = ir.DenseI64ArrayAttr.get([-1 if d is None else d for d in dims])


def stick_of(op: ir.Operation) -> tuple[int | None, ...] | None:
    """What a plan has in the stick at an op; None without a plan."""
    require_kind(op, STICK)
    if STICK not in op.attributes:
        return None
    return tuple(None if d < 0 else d for d in ir.DenseI64ArrayAttr(op.attributes[STICK]))


def copy_kernel(source: ir.Operation, *made: ir.Operation) -> None:
    """Put ops into the kernel of the op that they are made from."""
    if KERNEL in source.attributes:
        for op in made:
            op.attributes[KERNEL] = source.attributes[KERNEL]


def write_kernel(op: ir.Operation, number: int) -> None:
    """Note the kernel of an op."""
    op.attributes[KERNEL] = integer_attribute(number)


def kernel_of(op: ir.Operation) -> int | None:
    """The kernel of an op; None without a plan."""
    require_kind(op, KERNEL)
    function: Any = op.parent
    if KERNEL not in op.attributes or PLAN not in function.attributes:
        return None
    number, count = ir.IntegerAttr(op.attributes[KERNEL]).value, len(ir.ArrayAttr(function.attributes[PLAN]))
    if number >= count:
        raise KtirError(
            f"'{op.name}' op expects '{KERNEL}' to be the number of one of the {count} kernels planned, but got {number}", op.location
        )
    return number


def write_plan(function: func.FuncOp, kernels: Sequence[PlannedKernel]) -> None:
    """Note the kernels of a function."""
    function.attributes[PLAN] = ir.ArrayAttr.get([k.attribute() for k in kernels])


def plan_of(function: func.FuncOp) -> list[PlannedKernel]:
    """The kernels of a function; none without a plan."""
    require_kind(function.operation, PLAN)
    return [PlannedKernel.of(a) for a in ir.ArrayAttr(function.attributes[PLAN])] if PLAN in function.attributes else []
