"""`ktir.target`, the attribute of a module that is compiled for another target than `datasheet`: a preset's name, or the figures.

module attributes {ktir.target = {cores = 64 : i64, lx_bytes = 4194304 : i64, name = "wide"}}
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ktir.diagnostics import KtirError, location_text
from ktir.mlir import integer_attribute, ir
from ktir.target import CORELETS, DATASHEET, PRESETS, FigureError, Target

NAME = "ktir.target"
_GIVEN = [f.name for f in fields(Target) if "least" in f.metadata]
_WORDS = ("name", "dl16")
_WHOLE = {f.name for f in fields(Target) if f.type == "int"}


def target_of(module: ir.Module) -> Target:
    """The target that a module is compiled for. Raises KtirError for an attribute that says none."""
    attributes = module.operation.attributes
    return _read(module, attributes[NAME]) if NAME in attributes else DATASHEET


def set_target(module: ir.Module, target: Target) -> None:
    """Say that a module is compiled for a target. Raises KtirError if it is compiled for another one already."""
    if NAME in module.operation.attributes:
        if (found := target_of(module)) != target:
            what = f"is compiled for target '{found.name}' ('{NAME}'), but '{target.name}' is asked for"
            raise KtirError(f"'builtin.module' op {what}", location_text(module.operation.location))
    elif target != DATASHEET:
        with module.context:
            module.operation.attributes[NAME] = attribute_of(target)


def attribute_of(target: Target) -> ir.Attribute:
    """What stands for a target: its name if that says all, else the figures in which it differs from the datasheet."""
    if PRESETS.get(target.name) == target:
        return ir.StringAttr.get(target.name)
    found: dict[str, ir.Attribute] = {"name": ir.StringAttr.get(target.name)}
    if target.dl16 != DATASHEET.dl16:
        found["dl16"] = ir.StringAttr.get(target.dl16)
    for name in _GIVEN:
        value = getattr(target, name)
        if value != getattr(DATASHEET, name):
            found[name] = integer_attribute(value) if name in _WHOLE else ir.FloatAttr.get(ir.F64Type.get(), value)
    return ir.DictAttr.get(found)


def machine(module: ir.Module, target: str = "", cores: int | None = None, lx_bytes: int | None = None) -> Target:
    """What a pass compiles for: the module's target, or the one that the option `target` names, which is then the module's; with `cores` of
    its cores and `lx_bytes` of its scratchpad, where given."""
    if target:
        from ktir import targets

        set_target(module, targets.find(target))
    found = target_of(module)
    if found.corelets != CORELETS:
        why = "which divide the rows of a block between them; the machine itself runs streams for one, too"
        raise KtirError(f"programs are made for cores of {CORELETS} corelets, {why}, but target '{found.name}' has {found.corelets}")
    try:
        found = found if cores is None else found.with_cores(cores)
        return found if lx_bytes is None else found.with_room(lx_bytes)
    except ValueError as error:
        raise KtirError(f"{error}; the target is '{found.name}'") from None


def _read(module: ir.Module, attribute: ir.Attribute) -> Target:
    where = location_text(module.operation.location)

    def refuse(wrong: str) -> KtirError:
        return KtirError(f"'builtin.module' op expects '{NAME}' {wrong}", where)

    if isinstance(attribute, ir.StringAttr):
        if attribute.value not in PRESETS:
            raise refuse(f"to be one of {', '.join(PRESETS)} or a dictionary of figures, but got {attribute}")
        return PRESETS[attribute.value]
    if not isinstance(attribute, ir.DictAttr):
        raise refuse(f"to be a name or a dictionary of figures, but got {attribute}")
    figures: dict[str, Any] = {}
    for named in attribute:
        value: Any = named.attr
        if named.name not in _WORDS and named.name not in _GIVEN:
            raise refuse(f"to be a dictionary of figures, but '{named.name}' is none")
        if isinstance(value, ir.StringAttr | ir.IntegerAttr | ir.FloatAttr):
            figures[named.name] = value.value
        figures.setdefault(named.name, None)
    sources = {name: ("assumed", NAME) for name in figures if name not in _WORDS}
    try:
        return DATASHEET.changed(sources, **{"name": "unnamed", **figures})
    except FigureError as error:
        raise refuse(f"to be possible, but {error}") from None
