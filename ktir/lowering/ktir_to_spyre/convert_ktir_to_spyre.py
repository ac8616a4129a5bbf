"""Allocated KTIR -> a program of the Spyre instruction stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.calls import functions_of, launches, root_of
from ktir.arithmetic.numerics import round_to
from ktir.diagnostics import Unsupported, location_text, nodes_text, origin_text
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import target_of
from ktir.isa.instructions import Does
from ktir.isa.lane import lane_bits, lane_value
from ktir.isa.program import Argument, Kernel, Program, Source, Word
from ktir.isa.wellformed.loads_ahead import Aheads
from ktir.lowering.ktir_to_spyre.descriptors import stores_apart
from ktir.lowering.ktir_to_spyre.kernel import KernelLowering
from ktir.mlir import func, ir
from ktir.pipeline import Pass
from ktir.target import DL16, HALVES, ONES
from ktir.target import held as format_of


@dataclass(frozen=True)
class ConvertKtirToSpyrePass(Pass):
    """Replace the module's functions by a `spyre.program`.

    Expects: the allocated level. Guarantees: the spyre dialect; values do not change.
    """

    name: ClassVar[str] = "convert-ktir-to-spyre"
    description: ClassVar[str] = "allocated -> instruction stream"

    def run(self, module: ir.Module) -> None:
        """Rewrite the module."""
        require_level(module, self.name, Level.ALLOCATED)
        from ktir.dialects import spyre  # heavy to load, and only this pass needs it

        converted = spyre.to_mlir(lower_program(module), module.context)
        for op in list(module.body.operations):
            op.operation.erase()
        with ir.InsertionPoint(module.body):
            for op in converted.body.operations:
                op.operation.clone()
        set_level(module, Level.SPYRE)


def entry_function(module: ir.Module) -> func.FuncOp:
    """The function that the program starts with: the one without a grid that nothing calls."""
    return root_of(functions_of(module), module.operation.location)


def lower_program(module: ir.Module) -> Program:
    """Lower the entry function and its kernels, each once, for the module's target; raises Unsupported for what that lacks.

    A stream knows no functions but kernels: calls of functions are followed, and a kernel that runs several times stands there as often,
    with other arguments.
    """
    entry, target = entry_function(module), target_of(module)
    program = Program(ir.StringAttr(entry.operation.attributes["sym_name"]).value, program_arguments(entry), [])
    numbers: dict[Source, int] = {}

    def source_id(op: ir.Operation) -> int:
        source = Source(op.name, origin_text(op.location), nodes_text(op.location))
        if source not in numbers:
            numbers[source] = len(program.sources)
            program.sources.append(source)
        return numbers[source]

    lowered: dict[str, Kernel] = {}
    for launch in launches(module):
        name = launch.kernel.name.value
        if name not in lowered:
            own = list(range(len(launch.arguments)))
            lowered[name] = KernelLowering(launch.kernel.operation, name, own, source_id, target).kernel()
        program.kernels.append(_given(lowered[name], launch.arguments))
    if not program.kernels:
        raise Unsupported("'func.func' op computes nothing", location_text(entry.operation.location))
    stores_apart(program.kernels)
    program = Aheads(program).marked()
    return program if target.dl16 == "exact" else _in_dl16(program)


_IN_DL16 = {"addh": "addl", "addb": "addl"}


def _in_dl16(program: Program) -> Program:
    """The same on DLFloat16 in place of all floats of 16 bits."""

    def held(of: Any) -> Any:
        return replace(of, half=DL16.name) if of.element_bytes == 2 and of.half in HALVES else of

    def changed(w: Word, kernel: Kernel) -> Word:
        operands = dict(w.operands)
        if "half" in operands and operands.get("round", True):
            operands["half"] = DL16.name
        if "kind" in operands:
            operands["kind"] = _IN_DL16.get(operands["kind"], operands["kind"])
        if w.does is Does.FILL and kernel.descriptors[w["lx"]].element_bytes == 2:
            operands["value"] = lane_bits(float(round_to(DL16.name, np.full(1, lane_value(w["value"]), np.float32))[0]))
        return replace(w, operands=operands)

    kernels = [
        replace(k, descriptors=list(map(held, k.descriptors)), units={u: [changed(w, k) for w in words] for u, words in k.units.items()})
        for k in program.kernels
    ]
    return replace(program, arguments=list(map(held, program.arguments)), kernels=kernels)


def _given(kernel: Kernel, arguments: Sequence[int]) -> Kernel:
    """A kernel whose own arguments are these of the program."""
    descriptors = [d if d.arg is None else replace(d, arg=arguments[d.arg]) for d in kernel.descriptors]
    return replace(kernel, descriptors=descriptors)


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
        element = format_of(layout.dtype)
        if element.name in ONES and len(layout.device) == 2:
            element = ONES[element.name]
        name, role = ir.StringAttr(d["ktir.name"]).value, ir.StringAttr(d["ktir.role"]).value
        arguments.append(Argument(name, role, entries * element.bytes // 2, 1 if element.one else max(element.bytes, 2), element.half))
    return arguments
