"""The one door to MLIR: no other module imports `torch_mlir`, so a change of provider is a change of this file.

`ir`, `passmanager`, `rewrite` and `ext` are loaded at once; the dialect modules on first use, since some are slow to import.
NumPy is hidden while the bindings load (they work without it) because it would double the start-up time of the drivers.
"""

import importlib
import sys
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

if TYPE_CHECKING:
    from torch_mlir.dialects import arith, builtin, func, linalg, math, scf, tensor

_hidden = sys.modules.get("numpy")
sys.modules["numpy"] = None  # type: ignore[assignment]  # import machinery: None makes `import numpy` fail
try:
    from torch_mlir import ir, passmanager, rewrite
    from torch_mlir._mlir_libs._mlirDialectsLinalg import fill_builtin_region
    from torch_mlir.dialects import ext
finally:
    if _hidden is None:
        del sys.modules["numpy"]
    else:
        sys.modules["numpy"] = _hidden

for _location in (ir.CallSiteLoc, ir.FileLineColLoc, ir.FusedLoc, ir.NameLoc, ir.UnknownLoc):

    @ir.register_type_caster(_location.static_typeid, replace=True)
    def _cast(value: Any, location: Any = _location) -> Any:
        """A location as what it is. One that is an attribute's value stays an attribute, where the bindings would raise a TypeError."""
        return location(value) if isinstance(value, ir.Location) else value


def _erase_unused(op: Any, erase: Any = ir.Operation.erase) -> None:
    """What is still used stays: with it gone the bindings would write to memory that is no longer theirs when the user goes, too."""
    for result in op.operation.results:
        for use in result.uses:
            raise RuntimeError(f"'{op.operation.name}' op is erased while '{use.owner.operation.name}' uses it")
    erase(op)


next(kind for kind in ir.Operation.__mro__ if "erase" in vars(kind)).erase = _erase_unused

Entry = TypeVar("Entry")
_DIALECTS = {name: name for name in ("arith", "builtin", "func", "math", "scf", "tensor")} | {"linalg": "_linalg_ops_gen"}
"""The modules of dialects. Of linalg the generated classes alone: what stands around them needs NumPy and 0.2 s to load."""

__all__ = [
    "announce_dialect",
    "arith",
    "builtin",
    "ext",
    "fill_builtin_region",
    "func",
    "i32_type",
    "in_order",
    "integer_attribute",
    "ir",
    "is_a",
    "linalg",
    "math",
    "named",
    "names",
    "operations",
    "passmanager",
    "rewrite",
    "scf",
    "tensor",
]


def __getattr__(name: str) -> Any:
    if name not in _DIALECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"torch_mlir.dialects.{_DIALECTS[name]}")
    globals()[name] = module
    return module


def i32_type() -> ir.IntegerType:
    """Integers of 32 bits."""
    return ir.IntegerType.get_signless(32)


def integer_attribute(value: int) -> ir.IntegerAttr:
    """A number as an attribute, of 64 bits."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def announce_dialect(name: str, module: str) -> None:
    """Tells the bindings that the classes of dialect `name` are in `module`, which is loaded.

    They look for a module of their own package whenever they wrap an op, type or attribute, and repeat a search that failed.
    """
    sys.modules.setdefault(f"{ext.__package__}.{name}", sys.modules[module])


def is_a(op: ir.Operation | ir.OpView | ir.Block | None, *classes: type[ir.OpView]) -> TypeGuard[ir.Operation]:
    """Whether `op` is an op of one of these classes; what owns a value may be a block instead, and that is none.

    By name: to wrap an op in its class, as `isinstance(op.opview, X)` does, takes five times as long.
    """
    name = getattr(op, "name", None)
    for each in classes:  # asked thousands of times per program: `any` of them would take twice as long
        if name == each.OPERATION_NAME:
            return True
    return False


def names(*classes: type[ir.OpView] | str) -> tuple[str, ...]:
    """The names of ops of these classes, to look `op.name` up in. Names stay as they are: `names(*OTHERS, X)`."""
    return tuple(each if isinstance(each, str) else each.OPERATION_NAME for each in classes)


def named(table: Mapping[type[ir.OpView] | str, Entry]) -> dict[str, Entry]:
    """A table by class of op as one to look `op.name` up in; names stay as they are."""
    return dict(zip(names(*table), table.values(), strict=True))


def in_order(ops: Iterable[ir.Operation]) -> list[ir.Operation]:
    """Ops of one block as they come in it. To look for them among all that the block has would take long in a long one."""
    return sorted(ops, key=cmp_to_key(lambda a, b: -1 if a.is_before_in_block(b) else 1))


def operations(root: ir.Module | ir.Operation | ir.OpView) -> list[ir.Operation]:
    """`root` and every op in it, outer before inner. Take `.opview` of one for its accessors.

    A list, so that the caller may change the IR; an op that was erased meanwhile must not be touched again.
    (`Operation.walk` hides the exceptions of its callback.)
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found
