"""Makes MLIR contexts in which our dialects are loaded."""

import threading
from collections.abc import Collection

from ktir import registry
from ktir.mlir import announce_dialect, ir

# Loading a dynamic dialect writes process-wide tables of the bindings; two threads doing it at once crash the process.
_LOAD = threading.Lock()


def context(*, allow_unregistered: bool = False, dialects: Collection[str] | None = None) -> ir.Context:
    """A new context with our dialects loaded, all of them or those in `dialects`. Use it as `with context(), ir.Location.unknown():`.

    Errors arrive as exceptions and are never printed; see `ktir.diagnostics.collect`.
    """
    new = ir.Context()
    new.allow_unregistered_dialects = allow_unregistered
    with _LOAD, new:
        for name in registry.dialect_names() if dialects is None else dialects:
            dialect = registry.dialect_class(name)
            announce_dialect(name, dialect.__module__)
            dialect.load()
    return new
