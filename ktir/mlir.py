"""The one door to MLIR: no other module imports `torch_mlir`, so a change of provider is a change of this file.

`ir`, `passmanager`, `rewrite` and `ext` are loaded at once; the dialect modules on first use, since some are slow to import.
NumPy is hidden while the bindings load (they work without it) because it would double the start-up time of the drivers.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_mlir.dialects import arith, func, linalg, math, memref, scf, tensor

_hidden = sys.modules.get("numpy")
sys.modules["numpy"] = None  # type: ignore[assignment]  # import machinery: None makes `import numpy` fail
try:
    from torch_mlir import ir, passmanager, rewrite
    from torch_mlir.dialects import ext
finally:
    if _hidden is None:
        del sys.modules["numpy"]
    else:
        sys.modules["numpy"] = _hidden

_DIALECTS = ("arith", "func", "linalg", "math", "memref", "scf", "tensor")

__all__ = [
    "announce_dialect",
    "arith",
    "ext",
    "func",
    "ir",
    "linalg",
    "math",
    "memref",
    "operations",
    "passmanager",
    "rewrite",
    "scf",
    "tensor",
]


def __getattr__(name: str) -> Any:
    if name not in _DIALECTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"torch_mlir.dialects.{name}")
    globals()[name] = module
    return module


def announce_dialect(name: str, module: str) -> None:
    """Tells the bindings that the classes of dialect `name` are in `module`, which is loaded.

    They look for a module of their own package whenever they wrap an op, type or attribute, and repeat a search that failed.
    """
    sys.modules.setdefault(f"{ext.__package__}.{name}", sys.modules[module])


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
