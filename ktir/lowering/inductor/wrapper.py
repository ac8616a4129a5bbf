"""A region on its way to a package: emit, compile, store, and hand Inductor the content hash for the generated wrapper.

The wrapper holds `ktir_kernel_0 = ktir.runtime.cache.kernel("<hash>")`, never the kernel's text.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

from torch._logging._internal import trace_structured

from ktir import config
from ktir.assembly import print_module
from ktir.context import context
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.emit import emit
from ktir.lowering.inductor.region import Region
from ktir.mlir import ir


def logical(region: Region) -> ir.Module:
    """The verified logical module of a region, in the current context."""
    from ktir.diagnostics import verify

    module = emit(region)
    verify(module)
    return module


def compile_region(region: Region) -> str:
    """Compile a region to a package, store it, and return its key."""
    from ktir.lowering.compile import compile_logical
    from ktir.runtime import cache

    with context(), ir.Location.unknown():
        module = logical(region)
        text = print_module(module, debuginfo=True)
        key = content_hash(text)
        trace_structured("artifact", metadata_fn=lambda: {"name": f"ktir_logical_{key[:12]}", "encoding": "string"}, payload_fn=lambda: text)
        dump(key, "region.json", region.to_json())
        dump(key, "logical.ktir.mlir", text)
        files = compile_logical(module)
    cache.store(key, files)
    artifacts.record(key, files)
    return key


def content_hash(text: str) -> str:
    """The key of a kernel: its logical text together with whatever else decides the code that it becomes."""
    from ktir.lowering.inductor.adapter import identity

    return hashlib.sha256(pickle.dumps(identity(), protocol=4) + b"\0" + text.encode()).hexdigest()


def dump(key: str, name: str, text: str) -> None:
    """Write a stage to `config.dump_dir`/<key>/, if one is set."""
    folder = config.current().dump_dir
    if folder:
        path = Path(folder) / key[:16] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
