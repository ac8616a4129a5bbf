"""A region on its way to something that runs: translate, compile, store, and hand Inductor the content hash for the generated wrapper.

The wrapper holds `ktir_kernel_0 = ktir.runtime.cache.kernel("<hash>")`, never the kernel's text.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch._logging._internal import trace_structured

from ktir import config
from ktir.assembly import print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, Unsupported
from ktir.hints import HintRefused
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.running import progress
from ktir.lowering.inductor.running.fallback import Apart, Place, refused_by_chip
from ktir.lowering.inductor.running.faults import Fault, as_error, fault_of, first_line, in_the_users_words, notice, reproducer
from ktir.lowering.region_to_ktir.emit import read, write
from ktir.lowering.region_to_ktir.region import Buffer, NestRefused, Region
from ktir.mlir import ir
from ktir.runtime import failures, store
from ktir.runtime.kernel import ON_EXECUTOR, OURS
from ktir.runtime.logical import NOTICE, Argument, files_of

log = logging.getLogger(__name__)


def compile_region(region: Region) -> str:
    """Compile a region for the engine of the configuration, store the result, and return its content hash. Raises Apart where the chip's
    compiler refuses some nests of several.
    """
    from ktir.package import content_hash
    from ktir.runtime import cache

    with context(), ir.Location.unknown():
        try:
            text = write(region)
            module = read(text)
        except NestRefused:
            raise
        except Exception as error:
            raise _translation_fault(error, region) from error
        name = f"{region.name}_{_result_shape(region)}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        log.debug("region %s: %d nests, %d arguments", name, len(region.nests), len(region.arguments))
        with _own_dump_folder(name) as folder:
            if folder:
                (folder / "region.json").write_text(region.to_json())
            files, places = _compiled(name, region, module, text, folder)
    key = content_hash(files)
    cache.store(key, files)
    artifacts.record(key, files)
    if places:
        raise Apart(places, key)
    return key


def _translation_fault(error: Exception, region: Region) -> Fault:
    """The fault of a region that has no valid logical form, with a file of the region."""
    failures.capture(error, "compile", kernel_name=region.name)
    fault = fault_of(error, "the translation to KTIR", first_line(region))
    path = store.new_reproducer() / "region.json"
    path.write_text(region.to_json())
    fault.diagnostics = [*fault.diagnostics, Diagnostic("note", f"{OURS}; what it failed at is in {path}")]
    return fault


def _compiled(name: str, region: Region, module: ir.Module, text: str, folder: Path | None) -> tuple[dict[str, bytes], list[Place]]:
    """The files of a program: those of its logical form, and those of the chip's package. Where the chip's compiler refuses the program, or
    fails, a file that says so is in place of the package; `fallback="error"` makes it an error. Also the nests to take out, where it is
    some that are refused.
    """
    from ktir.lowering.compile import compile_logical

    options = config.current()
    files = files_of(text, [_argument(region.buffers[name]) for name in region.given])
    if options.engine != "spyre":
        _show(name, "logical", module)
        if folder:
            (folder / "0_logical.ktir.mlir").write_text(print_module(module, debuginfo=True))
        return files, []
    try:
        return files | compile_logical(module, observe=lambda stage, m: _show(name, stage, m)), []
    except HintRefused:
        raise
    except Unsupported as error:
        failures.capture(error, kernel_name=name)
        places = refused_by_chip(error, region)
        in_the_users_words(error, region)
        if options.fallback == "error":
            error.diagnostics.append(Diagnostic("note", f'without fallback="error" {ON_EXECUTOR}'))
            raise
        return files | {NOTICE: notice(error)}, places
    except Exception as error:
        failures.capture(error, "compile", kernel_name=name)
        fault = fault_of(error, "the compiler for the chip", first_line(region))
        if options.fallback == "error":
            raise as_error(fault, reproducer(print_module(read(text), debuginfo=True), folder, name)) from error
        return files | {NOTICE: notice(fault)}, []


def _argument(buffer: Buffer) -> Argument:
    role = "input" if buffer.role in ("input", "constant") else "output"
    return Argument(buffer.name, role, buffer.dtype, buffer.size, buffer.stride)


def _show(name: str, stage: str, module: ir.Module) -> None:
    """A stage for the terminal, TORCH_TRACE and TORCH_LOGS="+ktir"."""
    progress.show(name, stage)
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"ktir_{name}_{stage}", "encoding": "string"},
        payload_fn=lambda: print_module(module, debuginfo=True),
    )
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s after %s:\n%s", name, stage, print_module(module))


def _result_shape(region: Region) -> str:
    """Shape of the first result as text, to tell the programs of one model apart."""
    result = next((b for b in region.buffers.values() if b.role in ("output", "mutated", "mem", "pool")), None)
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
