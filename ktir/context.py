"""Makes MLIR contexts in which our dialects are loaded."""

import threading

from ktir import registry
from ktir.mlir import ir

# Loading a dynamic dialect writes process-wide tables of the bindings; two threads doing it at once crash the process.
_LOAD = threading.Lock()


def context(*, allow_unregistered: bool = False) -> ir.Context:
    """A new context with every dialect of ktir/dialects loaded. Use it as `with context(), ir.Location.unknown():`.

    Errors arrive as exceptions and are never printed; see `ktir.diagnostics.collect`.
    """
    new = ir.Context()
    new.allow_unregistered_dialects = allow_unregistered
    with _LOAD, new:
        for name in registry.dialect_names():
            registry.dialect_class(name).load()
    return new
