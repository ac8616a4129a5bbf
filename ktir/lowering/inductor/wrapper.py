"""A region on its way to a package: emit, compile, store, and hand Inductor the content hash for the generated wrapper.

The wrapper holds `ktir_kernel_0 = ktir.runtime.cache.kernel("<hash>")`, never the kernel's text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch._logging._internal import trace_structured

from ktir import config
from ktir.assembly import print_module
from ktir.context import context
from ktir.diagnostics import verify
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.emit import emit
from ktir.lowering.inductor.region import Region
from ktir.mlir import ir


def logical(region: Region) -> ir.Module:
    """The verified logical module of a region, in the current context."""
    module = emit(region)
    verify(module)
    return module


def compile_region(region: Region) -> str:
    """Compile a region to a package, store it, and return its content hash."""
    from ktir.lowering.compile import compile_logical
    from ktir.package import content_hash
    from ktir.runtime import cache

    with context(), ir.Location.unknown():
        module = logical(region)
        text = print_module(module, debuginfo=True)
        name = f"{region.name}_{_result_shape(region)}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        trace_structured("artifact", metadata_fn=lambda: {"name": f"ktir_{name}", "encoding": "string"}, payload_fn=lambda: text)
        with _own_dump_folder(name) as folder:
            if folder:
                (folder / "region.json").write_text(region.to_json())
            files = compile_logical(module)
    key = content_hash(files)
    cache.store(key, files)
    artifacts.record(key, files)
    return key


def _result_shape(region: Region) -> str:
    """Shape of the first output as text, to tell the programs of one model apart."""
    output = next(b for b in region.buffers.values() if b.role == "output")
    return "x".join(str(n) for n in output.size) or "scalar"


@contextmanager
def _own_dump_folder(name: str) -> Iterator[Path | None]:
    """A folder per graph inside `config.dump_dir`, if one is set: a model may be several graphs."""
    folder = config.current().dump_dir
    if not folder:
        yield None
        return
    own = Path(folder) / name
    own.mkdir(parents=True, exist_ok=True)
    with config.patch(dump_dir=str(own)):
        yield own
