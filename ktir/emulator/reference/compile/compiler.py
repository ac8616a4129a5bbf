"""MLIR to plan: every op of every function becomes one recording action, made once from plain data.

After compilation nothing refers to MLIR: SSA values are numbered slots of their function, attributes are Python values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from ktir.diagnostics import KtirError, Unsupported, location_text
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import target_of
from ktir.emulator.reference.compile.op_reader import Numbering, OpReader, where_of
from ktir.emulator.reference.compile.program import OWN_ROLES, Argument, BlockPlan, Function, OpPlan, Program
from ktir.emulator.reference.compile.registry import executor
from ktir.emulator.reference.tape.values import element_name
from ktir.layout import pool_elements
from ktir.mlir import ir

__all__ = ["TERMINATORS", "compile_block", "compile_module"]


TERMINATORS = (
    "func.return",
    "scf.yield",
    "scf.condition",
    "scf.reduce.return",
    "linalg.yield",
    "tensor.yield",
    "ktdp.yield_partial",
    "ktdp.yield_reduced",
    "ktdp.region_terminator",
    "ktir.yield",
)
"""Ops that only end a block: their operands are what the op around the block reads."""


def compile_block(block: ir.Block, numbering: Numbering) -> BlockPlan:
    """Compile every op of `block`. Raises Unsupported for an op without an executor."""
    arguments = tuple(numbering.define(a) for a in block.arguments)
    ops: list[OpPlan] = []
    yields: tuple[int, ...] = ()
    for view in block.operations:
        op = view.operation
        if op.name in TERMINATORS:
            yields = tuple(numbering[v] for v in op.operands)
            continue
        make = executor(op.name)
        if make is None:
            raise Unsupported(f"'{op.name}' op has no executor", location_text(op.location))
        reader = OpReader(op, numbering, compile_block)
        action = make(reader)
        ops.append(OpPlan(action, reader.where, tuple(reader.operands), tuple(reader.results), tuple(reader.blocks)))
    return BlockPlan(arguments, tuple(ops), yields)


def compile_module(module: ir.Module) -> Program:
    """Compile all functions of `module`.

    The entry is the function that no other one calls, if there is exactly one with a body. Raises KtirError for ops and types
    that cannot be executed.
    """
    functions: dict[str, Function] = {}
    called: set[str] = set()
    bodies = {_name(f.operation): f.regions[0].blocks[0] for f in module.body.operations if f.operation.regions and f.regions[0].blocks}
    remote = False
    for view in module.body.operations:
        op = view.operation
        if op.name != "func.func":
            raise Unsupported(f"'{op.name}' op has no executor at module level", location_text(op.location))
        functions[_name(op)] = function = Function(_name(op), where_of(op), _grid(op))
        if len(op.regions[0].blocks) == 0:
            continue
        if len(op.regions[0].blocks) > 1:
            raise Unsupported("'func.func' op has several blocks, which the executor does not support", function.where.location)
        numbering = Numbering()
        block = op.regions[0].blocks[0]
        attributes = list(ir.ArrayAttr(op.attributes["arg_attrs"])) if "arg_attrs" in op.attributes else []
        for i, argument in enumerate(block.arguments):
            given = ir.DictAttr(attributes[i]) if attributes else None
            underlying: Any = getattr(argument.type, "underlying", argument.type)  # of a runtime_arg
            made = _argument(numbering.define(argument), element_name(underlying), given)
            function.arguments.append(replace(made, narrow=_is_narrow(argument, given, bodies)))
        function.body = compile_block(block, numbering)
        function.slots = len(numbering.slots)
        remote |= numbering.remote
        called |= {
            ir.FlatSymbolRefAttr(o.operation.attributes["callee"]).value for o in block.operations if o.operation.name == "func.call"
        }
    roots = [f.name for f in functions.values() if f.body and f.name not in called]
    return Program(functions, roots[0] if len(roots) == 1 else None, remote, Level.of(module), target_of(module).lx_planned_bytes)


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


_MOST_TILES = 1 << 20
"""All tiles of a grid run at once, as an axis of every array."""


def _grid(op: ir.Operation) -> tuple[int, ...] | None:
    if "grid" not in op.attributes:
        return None
    grid = tuple(ir.IntegerAttr(n).value for n in ir.ArrayAttr(op.attributes["grid"]))
    if not 1 <= len(grid) <= 3 or any(n < 1 for n in grid):
        raise KtirError(f"'func.func' op expects a grid of 1 to 3 positive sizes, but got {list(grid)}", op.location)
    if prod(grid) > _MOST_TILES:
        raise KtirError(f"'func.func' op expects a grid of at most {_MOST_TILES} tiles, but got {prod(grid)}", op.location)
    return grid


def _argument(slot: int, type_: str, attributes: ir.DictAttr | None) -> Argument:
    def text(key: str) -> str | None:
        return ir.StringAttr(attributes[key]).value if attributes is not None and key in attributes else None

    elements = element = lies = None
    if attributes is not None and "ktir.layout" in attributes:
        layout: Any = attributes["ktir.layout"]
        elements, element = prod(layout.device), str(layout.dtype)
    elif text("ktir.role") in OWN_ROLES and attributes is not None and "ktir.type" in attributes:
        tensor = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
        elements, element = pool_elements(tensor.shape), str(tensor.element_type)
    elif attributes is not None and "ktir.strides" in attributes and "ktir.type" in attributes:
        tensor = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value)
        lies = (tuple(tensor.shape), tuple(ir.DenseI64ArrayAttr(attributes["ktir.strides"])))
    return Argument(slot, type_, text("ktir.name"), text("ktir.role"), elements, element, lies=lies)


def _is_narrow(argument: ir.Value, attributes: ir.DictAttr | None, bodies: Mapping[str, ir.Block]) -> bool:
    """Whether the host array has integers of another width than i32, which views of it show."""
    if attributes is None or "ktir.type" not in attributes:
        return False
    element = ir.RankedTensorType(ir.TypeAttr(attributes["ktir.type"]).value).element_type
    if not isinstance(element, ir.IntegerType) or element.width == 32:
        return False
    return any(str(ir.MemRefType(view.results[0].type).element_type) == "i32" for view in _views(argument, bodies))


def _views(address: ir.Value, bodies: Mapping[str, ir.Block]) -> Iterator[ir.Operation]:
    """The views of memory that begin at an address, also in functions that are given it."""
    for use in address.uses:
        user = use.owner.operation
        if user.name == "ktdp.construct_memory_view":
            yield user
        elif user.name == "arith.addi":
            yield from _views(user.results[0], bodies)
        elif user.name == "func.call" and (body := bodies.get(ir.FlatSymbolRefAttr(user.attributes["callee"]).value)) is not None:
            others = {name: other for name, other in bodies.items() if other != body}  # of functions that call themselves, each once
            yield from _views(body.arguments[use.operand_number], others)
