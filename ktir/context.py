"""Makes MLIR contexts in which our dialects are loaded."""

import io
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ktir import registry
from ktir.mlir import announce_dialect, ext, ir

# Loading a dynamic dialect writes process-wide tables of the bindings; two threads doing it at once crash the process.
_LOAD = threading.Lock()
_emitted: dict[str, tuple[type[ext.Dialect], bytes]] = {}
"""Dialects that were loaded, as IRDL: it is the same in every context, and to write it takes most of the time of loading."""

USUAL_DIALECTS = "builtin affine arith cf func irdl linalg math memref scf tensor".split()
"""What is loaded from the start; another one is where a text names it. To load all takes longer than to read most programs."""

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
    new = ir.Context(load_on_create_dialects=[])
    for name in USUAL_DIALECTS:
        new.get_dialect_descriptor(name)  # `dialects[name]` would import the Python side of the bindings as well, NumPy with it
    new.allow_unregistered_dialects = allow_unregistered
    with new:
        _load((*(registry.dialect_names() if dialects is None else dialects), *registry.plugin_dialects()))
    return new


_MOST_READ = 1_000_000
"""Characters: a context keeps the constants and types of all that it has read."""
_idle: list[tuple[ir.Context, int, tuple[str, ...]]] = []
"""Contexts that nobody uses, the characters that each has read, and the plugins' dialects in it."""
_of_parent: list[object] = []


def _leave_to_parent() -> None:
    """Threads of a context do not live on in a forked process: it is neither used there nor freed, which would wait for them."""
    _of_parent.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextmanager
def lent(characters: int) -> Iterator[ir.Context]:
    """A context as `context()` makes it, entered, to read so many characters of text, for work that leaves no IR behind."""
    plugins = registry.plugin_dialects()
    try:
        new, read, known = _idle.pop()
    except IndexError:
        new, read, known = context(), 0, plugins
    if known != plugins:
        new, read = context(), 0
    with new:
        yield new
    if (read := read + characters) < _MOST_READ:
        _idle.append((new, read, plugins))


def load_offered(text: str) -> None:
    """Loads into the current context the dialects that `text` names and installed packages offer."""
    foreign = {a or b for a, b in _PREFIX.findall(text)}.difference(UPSTREAM_DIALECTS, registry.dialect_names())
    _load(name for name in sorted(foreign) if not ir.Context.current.is_dialect_loaded(name) and registry.offered("ktir.dialects", name))


def _load(names: Iterable[str]) -> None:
    with _LOAD:
        for name in names:
            dialect = registry.dialect_class(name)
            announce_dialect(name, dialect.__module__)
            known, emitted = _emitted.get(name, (None, b""))
            if known is dialect:
                _load_again(dialect, emitted)
            else:
                dialect.load()
                buffer = io.BytesIO()
                dialect._mlir_module.operation.write_bytecode(buffer)
                _emitted[name] = dialect, buffer.getvalue()


def _load_again(dialect: type[ext.Dialect], emitted: bytes) -> None:
    """`dialect.load()` for one that was the last of its name; what the process knows of it stands, what a context knows is new."""
    ext.irdl.load_dialects(ir.Module.parse(emitted))
    for op in dialect.operations:
        op._attach_traits()
    for type_ in dialect.types:
        ext._cext.register_type_caster(ir.DynamicType.lookup_typeid(type_.type_name), replace=True)(type_)
    for attribute in dialect.attributes:
        ext._cext.register_type_caster(ir.DynamicAttr.lookup_typeid(attribute.attr_name), replace=True)(attribute)
