"""The level of a module: what a pass expects and what it leaves."""

from __future__ import annotations

from math import prod

from ktir.analysis.attributes.broken import refuse
from ktir.analysis.attributes.function_attributes import unsaid
from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.attributes.verify import check_attributes
from ktir.diagnostics import KtirError, location_text
from ktir.dialects.module_level import MADE_BY, NAME, Level
from ktir.mlir import arith, func, ir, is_a
from ktir.target import element_bytes


def require_level(module: ir.Module, name: str, level: Level, *, kernels: bool | None = None) -> None:
    """Raise KtirError if `module` is not at `level`, before the pass `name` touches anything.

    `kernels`: whether kernels must have been formed (True) or must not (False), of what is not formed by its author; None = either.
    """
    check_attributes(module)
    found = Level.of(module)
    formed = has_kernels(module)
    where = location_text(module.operation.location)
    if found != level:
        got = "a module without 'ktir.level'" if found is None else f"'{found}'"
        before = found is not None and list(Level).index(found) + 1 == list(Level).index(level)
        way = f"; '{MADE_BY[level]}' goes there from it" if before else ""
        raise KtirError(f"'{name}' expects a module at level '{level}', but got {got}{way}", where)
    if not level.of_host:
        refuse(fault for op in module.body.operations if isinstance(op, func.FuncOp) for fault in unsaid(op.operation))
    if kernels is not None and formed != kernels and any(map(_computes, module.body.operations)):
        raise KtirError(f"'{name}' expects a module {'with' if kernels else 'without'} kernels; ktir-form-kernels makes them", where)


def _computes(op: ir.OpView) -> bool:
    """Whether it is a function that the compiler makes a kernel of, or several: no author's, and none that only calls others."""
    if not isinstance(op, func.FuncOp) or not op.regions[0].blocks or is_authors(op):
        return False
    return not any(is_a(o, func.CallOp) for o in op.regions[0].blocks[0].operations)


def has_kernels(module: ir.Module) -> bool:
    """Whether kernels have been formed."""
    return any(isinstance(op, func.FuncOp) and "ktir.rows" in op.operation.attributes for op in module.body.operations)


def set_level(module: ir.Module, level: Level) -> None:
    """Note the level that a pass guarantees."""
    module.operation.attributes[NAME] = ir.StringAttr.get(level)


def tensor_bytes(value: ir.Value) -> int:
    """Bytes of a static tensor in sticks."""
    type_ = ir.RankedTensorType(value.type)
    return prod(type_.shape) * element_bytes(type_.element_type)


def constant_of(value: ir.Value) -> int | None:
    """The number that an index value is by its definition, an `arith.constant`; None for other values."""
    owner = value.owner
    return ir.IntegerAttr(owner.attributes["value"]).value if is_a(owner, arith.ConstantOp) else None
