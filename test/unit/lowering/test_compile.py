"""Programs that are refused in one form are compiled in another."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import ktir
from ktir.analysis.calls import calls_of, functions_of
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import PassError, remarks
from ktir.lowering import compile as compiling
from ktir.mlir import ir
from ktir.passes.flat.ktir_generalize import GeneralizePass
from ktir.passes.ktir_to_allocated import ToAllocated


@pytest.fixture(scope="module")
def layers() -> str:
    """Seven equal layers."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid()) for _ in range(7))).half()
    with torch.no_grad():
        return ktir.capture(model, torch.randn(5, 64).half())


def compiled(text: str, saved: int, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], list[str]]:
    """The files of a package, and what was missed."""
    monkeypatch.setattr(compiling, "ToAllocated", partial(ToAllocated, saved=saved))
    with context(), ir.Location.unknown(), remarks() as found:
        module = parse_module(text)
        files = compiling.compile_logical(module)
    return files, [r.message for r in found if r.kind == "missed" and r.pass_name == "ktir-outline-repeats"]


def refuse_calls(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A pass that does not like functions that call."""
    own = GeneralizePass.run

    def run(self: GeneralizePass, module: ir.Module) -> None:
        if any(calls_of(f) for f in functions_of(module).values()):
            raise PassError(where)
        own(self, module)

    monkeypatch.setattr(GeneralizePass, "run", run)


def test_layers_that_no_pass_takes_as_calls_are_compiled_as_they_were_written(layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_calls, _ = compiled(layers, 10, monkeypatch)
    as_written, missed = compiled(layers, 0, monkeypatch)
    assert as_calls != as_written
    assert not missed
    refuse_calls(monkeypatch, "a fault behind the calls")
    again, missed = compiled(layers, 10, monkeypatch)
    assert again == as_written
    assert len(missed) == 1
    assert "a fault behind the calls" in missed[0]


def test_what_was_no_calls_is_refused_once(layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[None] = []

    def run(self: GeneralizePass, module: ir.Module) -> None:
        runs.append(None)
        raise PassError("a fault of its own")

    monkeypatch.setattr(GeneralizePass, "run", run)
    with pytest.raises(PassError, match="a fault of its own"):
        compiled(layers, 0, monkeypatch)
    assert len(runs) == 1
