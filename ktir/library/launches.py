"""Launches of operators that run on their own: in eager, and in compiled graphs where they are no part of a program."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ktir import config
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, Unsupported
from ktir.library.kernels import Program
from ktir.lowering.compile import compile_logical
from ktir.lowering.inductor.running import faults
from ktir.mlir import ir
from ktir.package import content_hash
from ktir.runtime import cache, failures
from ktir.runtime.kernel import ON_EXECUTOR
from ktir.runtime.logical import NOTICE, files_of

_FAULTS: dict[str, dict[str, bytes]] = {}
"""What is told of the compiler for the chip once the executor has run the program: a program that it refuses, too, is itself at fault."""
_ERRORS: dict[str, KtirError] = {}
"""What is raised then instead, where no other engine may run a program."""


@functools.lru_cache(512)
def _compiled(called: str, program: Program, options: object) -> str:
    """The key under which the store has a program. `called`: the operator with its operands, for messages."""
    files: dict[str, bytes] = files_of(program.text, program.arguments)
    fault = raised = None
    if config.current().engine == "spyre":
        try:
            with context(), ir.Location.unknown():
                files |= compile_logical(parse_module(program.text, program.file))
        except Unsupported as error:
            failures.capture(error, kernel_name=called)
            if config.current().fallback == "error":
                error.diagnostics.append(Diagnostic("note", f'without fallback="error" {ON_EXECUTOR}'))
                raise
            error.message = f"{called}{faults.NO_FORM}{error.message}"
            error.diagnostics = [Diagnostic("error", error.message, error.location, error.notes), *error.diagnostics[1:]]
            files |= {NOTICE: faults.notice(error)}
        except Exception as error:
            failures.capture(error, "compile", kernel_name=called)
            fault = faults.fault_of(error, f"{called}: the compiler for the chip", of=called)
            if config.current().fallback == "error":
                raised = faults.as_error(fault, faults.reproducer(program.text))
                raised.__cause__ = error
            files |= {NOTICE: faults.notice(fault)}
    key = content_hash(files)
    if raised is not None:
        _ERRORS[key] = raised
    elif fault is None:
        faults.say(files)
    else:
        _FAULTS[key] = files
    cache.store(key, files)
    return key


def compiled(called: str, program: Program) -> str:
    """The key under which the store has a program, for the options of now. Raises Unsupported where no other engine may run it."""
    return _compiled(called, program, config.current().key())


def is_taken(called: str, program: Program) -> bool:
    """Whether no engine has refused it."""
    return NOTICE not in cache.files(compiled(called, program))


def launch(called: str, program: Program, tensors: Mapping[str, torch.Tensor]) -> None:
    """Run a program on tensors of the host or of the device, which it writes in place."""
    key = compiled(called, program)
    loaded = cache.load(key)
    own = {a.name: tensors[a.name].detach() for a in program.arguments}
    dense = {name: t.contiguous() for name, t in own.items()}
    strict = config.current().fallback == "error"
    if strict and key in _ERRORS:
        loaded(*_operands([t.clone() for t in dense.values()]))  # raises what the program does wrong
        raise _ERRORS[key].with_traceback(None)
    loaded(*_operands(list(dense.values())), strict=strict)
    if key in _FAULTS:
        faults.say(_FAULTS.pop(key))
    for name in program.written:
        if dense[name] is not own[name]:
            own[name].copy_(dense[name])
        torch.autograd.graph.increment_version([tensors[name]])


def _operands(tensors: Sequence[torch.Tensor]) -> list[Any]:
    if not any(t.device.type == "spyre" for t in tensors):
        return list(tensors)
    from ktir.device.tensors.storage import on_card  # there is such a tensor, so the device is loaded

    return [on_card(t) if t.device.type == "spyre" else t for t in tensors]
