"""A module that states no level is looked at: what it is, and what its arguments are, is written down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ktir.analysis.attributes.levels import set_level
from ktir.analysis.attributes.residents import resident_of
from ktir.analysis.calls import argument_attributes, functions_of, is_kernel, root_of, set_arguments
from ktir.analysis.interface.parameters import Parameter, parameters
from ktir.diagnostics import Diagnostic, KtirError, location_text
from ktir.dialects import ktdp
from ktir.dialects.module_level import NAME, Level
from ktir.mlir import func, ir, is_a, operations, scf
from ktir.passes.levels.ktir_verify_level import VerifyLevelPass
from ktir.pipeline import Pass


@dataclass(frozen=True)
class StateLevelPass(Pass):
    """Find out at which level a module is that does not say, and state it.

    Of a logical program the arguments get what they do not say: a name, a role as loads and stores have it, and the type that the views
    of them show.

    Expects: any module. Guarantees: a module that states its level, or an error that names the level which it looks like and what is
    missing there; one that states it already is left as it is.
    """

    name: ClassVar[str] = "ktir-state-level"
    description: ClassVar[str] = "write down the level of a module that does not state one"

    def run(self, module: ir.Module) -> None:
        """Look at the module, and hold it against its level."""
        if NAME in module.operation.attributes:
            return
        level = _level(module)
        if level is Level.LOGICAL:
            _describe_arguments(module)
        set_level(module, level)
        try:
            VerifyLevelPass().run(module)
        except KtirError as error:
            del module.operation.attributes[NAME]
            where = location_text(module.operation.location)
            note = Diagnostic("note", f"the module states no 'ktir.level' and is read as one at level '{level}'", where)
            first, *others = error.diagnostics
            raise KtirError.of([replace(first, notes=(*first.notes, note)), *others], error.message) from None
        self.remark("analysis", f"the module is at level '{level}'", module.operation.location)


def _level(module: ir.Module) -> Level:
    """The level that the functions look like. Raises KtirError for kernels that nothing calls, and for a module without functions."""
    functions = {name: f for name, f in functions_of(module).items() if f.regions[0].blocks}
    if not functions:
        raise KtirError("'builtin.module' op expects a function with a body", location_text(module.operation.location))
    kernels = [f for f in functions.values() if is_kernel(f)]
    if len(kernels) == len(functions):
        raise KtirError(
            f"'func.func' op '@{kernels[0].name.value}' is a kernel, which 'ktir-pin' gives a function that calls it",
            location_text(kernels[0].location),
        )
    described = argument_attributes(root_of(functions, module.operation.location))
    if not kernels:
        if any("ktir.layout" in d for d in described):
            return Level.LAID_OUT
        return Level.FLAT if any("ktir.plan" in f.attributes for f in functions.values()) else Level.LOGICAL
    if not all("grid" in k.attributes for k in kernels):
        return Level.LAID_OUT
    ops = operations(module)
    if any(is_a(op, ktdp.ConstructMemoryViewOp) and op.opview.memory_space != "global" and resident_of(op) is None for op in ops):
        return Level.ALLOCATED
    return Level.TILED if any(is_a(op, scf.ForOp) for op in ops) else Level.DIVIDED


def _describe_arguments(module: ir.Module) -> None:
    """Say of each argument of a logical program what it does not say itself."""
    for name, function in functions_of(module).items():
        if not function.regions[0].blocks:
            continue
        described = argument_attributes(function)
        found, _ = parameters(module, name)
        set_arguments(function, [_described(function, p, d) for p, d in zip(found, described, strict=True)])


def _described(function: func.FuncOp, p: Parameter, given: ir.DictAttr) -> ir.DictAttr:
    missing = {key for key in ("ktir.name", "ktir.role", "ktir.type") if key not in given}
    attributes = {a.name: a.attr for a in given}
    if not missing or not p.is_buffer:
        return given
    if "ktir.type" in missing and p.shape is None:
        where = location_text(function.regions[0].blocks[0].arguments[p.position].location)
        raise KtirError(
            f"'func.func' op expects argument #{p.position} to have an attribute 'ktir.type': its views do not tell its size", where
        )
    said: dict[str, ir.Attribute] = {"ktir.name": ir.StringAttr.get(p.name), "ktir.role": ir.StringAttr.get(p.role)}
    if p.shape is not None:
        said["ktir.type"] = ir.TypeAttr.get(ir.RankedTensorType.get(list(p.shape), ir.Type.parse(p.element)))
    return ir.DictAttr.get(attributes | {key: said[key] for key in missing})
