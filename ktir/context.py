"""Makes MLIR contexts in which our dialects are loaded."""

import re
import threading
from collections.abc import Iterable

from ktir import registry
from ktir.mlir import announce_dialect, ir

# Loading a dynamic dialect writes process-wide tables of the bindings; two threads doing it at once crash the process.
_LOAD = threading.Lock()

UPSTREAM_DIALECTS = (
    "acc affine amdgpu amx arith arm_neon arm_sme arm_sve async bufferization builtin cf complex dlti emitc func gpu index irdl linalg "
    "llvm math memref ml_program mpi nvgpu nvvm omp pdl pdl_interp ptr quant rocdl scf shape shard smt sparse_tensor spirv tensor tosa "
    "transform ub vector wasmssa x86 x86vector xegpu xevm"
).split()

_PREFIX = re.compile(r'(?:^|[={}])\s*"?([a-z_]\w*)\.[a-z_]|[!#]([a-z_]\w*)\.', re.MULTILINE)
"""Dialects of ops, types and attributes."""


def context(*, allow_unregistered: bool = False, dialects: Iterable[str] | None = None) -> ir.Context:
    """A new context with our dialects loaded, all of them or those in `dialects`, and those of the plugins that are known.

    Use it as `with context(), ir.Location.unknown():`.

    Errors arrive as exceptions and are never printed; see `ktir.diagnostics.collect`.
    """
    new = ir.Context()
    new.allow_unregistered_dialects = allow_unregistered
    with new:
        _load((*(registry.dialect_names() if dialects is None else dialects), *registry.plugin_dialects()))
    return new


def load_offered(text: str) -> None:
    """Loads into the current context the dialects that `text` names and installed packages offer."""
    foreign = {a or b for a, b in _PREFIX.findall(text)}.difference(UPSTREAM_DIALECTS, registry.dialect_names())
    _load(name for name in sorted(foreign) if not ir.Context.current.is_dialect_loaded(name) and registry.offered("ktir.dialects", name))


def _load(names: Iterable[str]) -> None:
    with _LOAD:
        for name in names:
            dialect = registry.dialect_class(name)
            announce_dialect(name, dialect.__module__)
            dialect.load()
