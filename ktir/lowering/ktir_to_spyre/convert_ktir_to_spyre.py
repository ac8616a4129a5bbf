"""Allocated KTIR -> a program of the Spyre instruction stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktir as kt
from ktir.isa.program import Argument, Program, Source
from ktir.mlir import func, ir
from ktir.passes._levels import require_level, set_level
from ktir.pipeline import Pass

from .kernel import KernelLowering


@dataclass(frozen=True)
class ConvertKtirToSpyrePass(Pass):
    """Replace the module's functions by a `spyre.program`.

    Expects: the allocated level. Guarantees: the spyre dialect; values do not change.
    """

    name: ClassVar[str] = "convert-ktir-to-spyre"
    description: ClassVar[str] = "allocated -> instruction stream"

    def run(self, module: ir.Module) -> None:
        """Rewrite the module."""
        require_level(module, self.name, "allocated")
        from ktir.dialects import spyre  # heavy to load, and only this pass needs it

        converted = spyre.to_mlir(lower_program(module), module.context)
        for op in list(module.body.operations):
            op.operation.erase()
        with ir.InsertionPoint(module.body):
            for op in converted.body.operations:
                op.operation.clone()
        set_level(module, "spyre")


def entry_function(module: ir.Module) -> func.FuncOp:
    """The function that the program starts with: the one without a grid."""
    for op in module.body.operations:
        if isinstance(op, func.FuncOp) and "grid" not in op.attributes:
            return op
    raise Unsupported("expects an entry function without grid", location_text(module.operation.location))


def lower_program(module: ir.Module) -> Program:
    """Lower the entry function and its kernels; raises Unsupported for what the instruction set lacks."""
    entry = entry_function(module)
    functions = {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
        for op in module.body.operations
        if isinstance(op, func.FuncOp)
    }
    program = Program(ir.StringAttr(entry.operation.attributes["sym_name"]).value, program_arguments(entry), [])
    numbers: dict[Source, int] = {}

    def source_id(op: ir.Operation) -> int:
        source = Source(op.name, location_text(op.location))
        if source not in numbers:
            numbers[source] = len(program.sources)
            program.sources.append(source)
        return numbers[source]

    parameters = list(entry.regions[0].blocks[0].arguments)
    for op in entry.regions[0].blocks[0].operations:
        if op.operation.name != "func.call":
            continue
        callee = ir.FlatSymbolRefAttr(op.operation.attributes["callee"]).value
        arguments = [parameters.index(v) for v in op.operation.operands]
        program.kernels.append(KernelLowering(functions[callee], callee, arguments, source_id).kernel())
    if not program.kernels:
        raise Unsupported("'func.func' op computes nothing", location_text(entry.operation.location))
    return program


def program_arguments(entry: func.FuncOp) -> list[Argument]:
    """The device buffers of a program, from the attributes of its entry function."""
    arguments = []
    attributes = entry.operation.attributes
    for item in ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else []:
        d = ir.DictAttr(item)
        layout = kt.LayoutAttr(d["ktir.layout"])
        entries = 1
        for extent in layout.device[:-1]:
            entries *= extent
        element_bytes = 2 if isinstance(layout.dtype, ir.F16Type) else 4
        name, role = ir.StringAttr(d["ktir.name"]).value, ir.StringAttr(d["ktir.role"]).value
        arguments.append(Argument(name, role, entries * element_bytes // 2, element_bytes))
    return arguments
