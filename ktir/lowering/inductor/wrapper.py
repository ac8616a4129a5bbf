"""A region on its way to something that runs: translate, compile, store, and hand Inductor the content hash for the generated wrapper.

The wrapper holds `ktir_kernel_0 = ktir.runtime.cache.kernel("<hash>")`, never the kernel's text.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch._logging._internal import trace_structured

from ktir import config
from ktir.assembly import print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, PassError, Unsupported, verify
from ktir.hints import HintRefused
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.emit import emit
from ktir.lowering.inductor.fallback import warn_once
from ktir.lowering.inductor.region import Buffer, Region
from ktir.mlir import ir
from ktir.pipeline import Reproducer, parse_pipeline
from ktir.runtime.logical import Argument, files_of

log = logging.getLogger(__name__)


def translate(region: Region) -> None:
    """Raise NestRefused for a region that has no logical form."""
    with context(), ir.Location.unknown():
        emit(region)


def logical(region: Region) -> ir.Module:
    """The verified logical module of a region, in the current context."""
    module = emit(region)
    verify(module)
    return module


def compile_region(region: Region) -> str:
    """Compile a region for the engine of the configuration, store the result, and return its content hash."""
    from ktir.package import content_hash
    from ktir.runtime import cache

    with context(), ir.Location.unknown():
        module = logical(region)
        text = print_module(module, debuginfo=True)
        name = f"{region.name}_{_result_shape(region)}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        log.debug("region %s: %d nests, %d arguments", name, len(region.nests), len(region.arguments))
        with _own_dump_folder(name) as folder:
            if folder:
                (folder / "region.json").write_text(region.to_json())
            files = _compiled(name, region, module, text, folder)
    key = content_hash(files)
    cache.store(key, files)
    artifacts.record(key, files)
    return key


def _compiled(name: str, region: Region, module: ir.Module, text: str, folder: Path | None) -> dict[str, bytes]:
    """The files of a package; where the chip's compiler refuses the program, those of its logical form. A fault of the compiler is none
    of the program: it is raised, with a file that reproduces it.
    """
    from ktir.lowering.compile import compile_logical

    options = config.current()
    if options.engine == "spyre":
        try:
            return compile_logical(module, observe=lambda stage, m: _show(name, stage, m))
        except Unsupported as error:
            if options.fallback == "error":
                raise
            warn_once("program", error, error.message, "the program runs on the KTIR executor instead of the emulated chip")
        except HintRefused:
            raise
        except Exception as error:
            raise _fault(error, name, module, text, folder) from error
    else:
        _show(name, "logical", module)
        if folder:
            (folder / "0_logical.ktir.mlir").write_text(text)
    return files_of(text, [_argument(region.buffers[name]) for name in region.arguments])


def _fault(error: Exception, name: str, module: ir.Module, text: str, folder: Path | None) -> KtirError:
    """The error for a fault of the chip's compiler, and what to run to see it again."""
    from ktir.lowering.compile import pipeline

    fault = error if isinstance(error, KtirError) else PassError(f"the compiler for the chip failed: {type(error).__name__}: {error}")
    path = (folder or Path(tempfile.mkdtemp(prefix="ktir-"))) / f"{name}.reproducer.mlir"
    steps = parse_pipeline(f"{pipeline(config.current().cores)},convert-ktir-to-spyre")
    Reproducer(path, lambda _: text).write(module, steps, verify_each=True)
    fault.diagnostics.append(
        Diagnostic("note", f"the fault lies in ktir, not in the model; see it again with ktir-opt --run-reproducer {path}")
    )
    return fault


def _argument(buffer: Buffer) -> Argument:
    role = "input" if buffer.role in ("input", "constant") else "output"
    return Argument(buffer.name, role, buffer.dtype, buffer.size, buffer.stride)


def _show(name: str, stage: str, module: ir.Module) -> None:
    """A stage for TORCH_TRACE and TORCH_LOGS="+ktir"."""
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"ktir_{name}_{stage}", "encoding": "string"},
        payload_fn=lambda: print_module(module, debuginfo=True),
    )
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s after %s:\n%s", name, stage, print_module(module))


def _result_shape(region: Region) -> str:
    """Shape of the first result as text, to tell the programs of one model apart."""
    result = next((b for b in region.buffers.values() if b.role in ("output", "mutated", "mem")), None)
    return "x".join(map(str, result.size)) if result and result.size else "scalar"


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
