"""Whether the attributes of a module are as `table` declares them.

A module that was read is seen as a whole, once (`ktir.analysis.program_rules`). `check_attributes` looks at the module's own attributes
and those of functions and arguments, which the pass after reads without another look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ktir.analysis.attributes import function_attributes
from ktir.analysis.attributes.broken import Broken, faults_of, refuse
from ktir.analysis.attributes.kernel import level_within
from ktir.analysis.attributes.table import TABLE, Declared, On
from ktir.diagnostics import Diagnostic
from ktir.dialects.module_level import Level
from ktir.mlir import builtin, func, ir, is_a

_PREFIX = "ktir."
_GRID = "grid"
_OF_MLIR = frozenset(("sym_name", "function_type", "arg_attrs", "res_attrs", "sym_visibility", "no_inline"))


def check_attributes(module: ir.Module) -> None:
    """Raise KtirError for attributes of the module, its functions and their arguments that are not as declared."""
    functions = [op.operation for op in module.body.operations if isinstance(op, func.FuncOp)]
    refuse(faults(module, [module.operation, *functions]))


def require_kind(op: ir.Operation, name: str) -> None:
    """Raise KtirError if an op has an attribute of another kind than is declared."""
    if name in op.attributes:
        refuse(faults_of([op], lambda op: _check(name, op.attributes[name], None, _places(op))))


def faults(module: ir.Module, ops: Iterable[ir.Operation]) -> Iterator[Diagnostic]:
    """What is wrong with attributes of ops, first with each by itself, and where nothing is, between those of a function."""
    level = Level.of(module)
    found, ops = False, list(ops)
    within = level
    for op in ops:
        within = level_within(op, level) if is_a(op, func.FuncOp) else within
        for fault in _of_op(op, within):
            found = True
            yield fault
    if found:
        return
    for op in ops:
        if is_a(op, func.FuncOp):
            yield from faults_of([op], lambda f: function_attributes.kernel(f, level_within(f, level)))
            yield from function_attributes.faults(op, module.operation, level)


def _of_op(op: ir.Operation, level: Level | None) -> Iterator[Diagnostic]:
    names = [name for name in op.attributes if name.startswith(_PREFIX)]
    if is_a(op, func.FuncOp):
        names += [name for name in op.attributes if name == _GRID or (name not in _OF_MLIR and _near(name, (_GRID,), 0.75))]
        yield from _of_signature(op, level)
    for name in names:
        yield from faults_of([op], lambda op, name=name: _check(name, op.attributes[name], level, _places(op)))


def _places(op: ir.Operation) -> tuple[On | str, ...]:
    """What an op is as a carrier of attributes."""
    if is_a(op, builtin.ModuleOp):
        return (On.MODULE,) if op.parent is None else ()
    if not is_a(op, func.FuncOp):
        return (op.name, On.OP)
    return (On.KERNEL,) if "ktir.rows" in op.attributes or _GRID in op.attributes else (On.FUNCTION,)


def _of_signature(f: ir.Operation, level: Level | None) -> Iterator[Diagnostic]:
    """Attributes of the arguments and results of a function."""
    for i, given in enumerate(function_attributes.dictionaries(f, "arg_attrs")):
        for name in (a.name for a in given if a.name.startswith(_PREFIX)):

            def check(_: ir.Operation, i: int = i, given: ir.DictAttr = given, name: str = name) -> None:
                _check(name, given[name], level, (On.ARGUMENT,), f" of argument #{i}")

            yield from faults_of([f], check, lambda i=i: function_attributes.place(f, i))
    for i, given in enumerate(function_attributes.dictionaries(f, "res_attrs")):
        for name in (a.name for a in given if a.name.startswith(_PREFIX)):
            yield from faults_of([f], lambda _, i=i, given=given, name=name: _check(name, given[name], level, (), f" of result #{i}"))


def _check(name: str, value: ir.Attribute, level: Level | None, places: tuple[On | str, ...], where: str = "") -> None:
    if name not in TABLE:
        raise Broken(f"has an unknown attribute '{name}'{where}{_meant(name, TABLE)}")
    declared = next((d for d in TABLE[name] if not set(d.on).isdisjoint(places)), None)
    if declared is None:
        raise Broken(f"has '{name}'{where}, an attribute of {' or '.join(d.carriers for d in TABLE[name])}")
    if not declared.kind.holds(value):
        raise Broken(f"expects '{name}'{where} to be {declared.kind.what}, but got {value}{_chosen(declared, value)}")
    if level is not None and level not in declared.levels:
        raise Broken(f"has '{name}'{where}, an attribute of {declared.stands}, in a module at level '{level}'")


def _chosen(declared: Declared, value: ir.Attribute) -> str:
    return _meant(value.value, declared.kind.choices) if isinstance(value, ir.StringAttr) else ""


def _meant(name: str, known: Collection[str]) -> str:
    near = _near(name, known)
    return f"; did you mean '{near}'?" if near else ""


def _near(name: str, known: Collection[str], cutoff: float = 0.7) -> str | None:
    """The known name that is most like another one."""
    from difflib import get_close_matches  # for faulty input alone: it takes its time to load

    return next(iter(get_close_matches(name, known, 1, cutoff)), None)
