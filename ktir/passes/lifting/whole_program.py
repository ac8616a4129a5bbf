"""A module with a kernel by hand as a logical program."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.analysis.calls import functions_of, set_arguments
from ktir.analysis.interface.parameters import Parameter, parameters
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import func, integer_attribute, ir, is_a, linalg, operations
from ktir.passes.lifting.lifter import Lifter
from ktir.passes.pinning.ktir_pin import PinPass, check_memory

_NEW = "__lifted"


@dataclass(frozen=True)
class Lifted:
    """What has become of a module."""

    name: str
    tiles: int
    moved: tuple[ir.Location, ...]
    """Where sums are that have another order than the author's."""
    sums: bool
    """Whether floats are summed, whose order the passes below may change."""


def lift(module: ir.Module, numbers: tuple[str, ...]) -> Lifted:
    """Make a kernel by hand a function without a grid, in place. Raises Unsupported, and leaves the module as it was."""
    functions = list(functions_of(module).values())
    if len(functions) != 1:
        raise refused(functions[1].operation, "is one of several functions, which are not lifted")
    (kernel,) = functions
    name, pin = kernel.name.value, PinPass(numbers)
    found, _ = parameters(module, name)
    given = pin.given(found, kernel)
    known = {found[i].name: int(n) for i, n in given.items() if float(n).is_integer()}
    found, places = parameters(module, name, numbers=known)
    if places:
        raise refused(kernel.operation, "uses memory at fixed addresses, which is not lifted")
    check_memory(found, kernel)
    buffers = [p for p in found if p.is_buffer]
    with ir.InsertionPoint(kernel), kernel.location:
        made = func.FuncOp(f"{name}{_NEW}", ([ir.IndexType.get()] * len(buffers), []))
    alone = "grid" not in kernel.attributes
    if alone:  # there is one tile
        kernel.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(1)])
    try:
        old = kernel.regions[0].blocks[0]
        block = made.add_entry_block([old.arguments[p.position].location for p in buffers])
        with ir.InsertionPoint(block), kernel.location:
            lifter = Lifter(kernel, {old.arguments[p.position]: a for p, a in zip(buffers, block.arguments, strict=True)}, given)
            lifter.block(old)
            func.ReturnOp([])
        for p, argument in zip(buffers, block.arguments, strict=True):
            if "output" in p.role and not _is_stored(argument):
                raise refused(kernel.operation, f"stores to '{p.name}' on no tile and in no trip, which is not lifted")
        set_arguments(made, [_attributes(p) for p in buffers])
    except Exception:
        made.operation.erase()
        if alone:
            del kernel.attributes["grid"]
        raise
    sums = any(is_a(op, linalg.GenericOp) and Generic(op).sums_floats for op in operations(made))
    lifted = Lifted(name, lifter.tiles, tuple(op.location for op in lifter.ops.moved), sums)
    kernel.operation.erase()
    made.operation.attributes["sym_name"] = ir.StringAttr.get(name)
    return lifted


def _is_stored(memory: ir.Value) -> bool:
    """Whether something is stored to memory, or to a view or tile of it."""
    users = [use.owner.operation for use in memory.uses]
    return any(is_a(op, ktdp.StoreOp) or (not is_a(op, ktdp.LoadOp) and any(map(_is_stored, op.results))) for op in users)


def _attributes(p: Parameter) -> ir.DictAttr:
    type_ = ir.RankedTensorType.get(list(p.shape or ()), ir.Type.parse(p.element))
    said: dict[str, ir.Attribute] = {
        "ktir.name": ir.StringAttr.get(p.name),
        "ktir.role": ir.StringAttr.get(p.role),
        "ktir.type": ir.TypeAttr.get(type_),
    }
    return ir.DictAttr.get(said)
