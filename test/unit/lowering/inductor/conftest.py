"""Compile with the real adapter and emitter; run the logical module, after a trip through its text, in the KTIR executor and, as a second
opinion, in the evaluator beside this file.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path

import ktir.runtime
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import verify
from ktir.emulator.reference import execute
from ktir.lowering.inductor import artifacts
from ktir.lowering.inductor.backend import compile_graph
from ktir.lowering.region_to_ktir.emit import emit
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir


def _sibling(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Logical:
    """A model compiled to logical KTIR and evaluated at that level."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.regions: list[Region] = []
        self.launches = 0

    def compile_region(self, region: Region) -> str:
        assert Region.from_json(region.to_json()).to_json() == region.to_json()  # as text, where NaN equals NaN
        self.regions.append(region)
        with context(), ir.Location.unknown():
            text = print_module(emit(region))
        key = hashlib.sha256(text.encode()).hexdigest()
        self.texts[key] = text
        return key

    def kernel(self, key: str) -> Callable[..., None]:
        def launch(*tensors: torch.Tensor) -> None:
            self.launches += 1
            flat = [_flat(t).numpy() for t in tensors]
            with context(), ir.Location.unknown():
                module = parse_module(self.texts[key])
                verify(module)
                assert print_module(module) == self.texts[key]
                execute(module, args=flat)

        return launch

    def backend(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        return compile_graph(gm, inputs, self.compile_region, cached=False)

    def run(self, model: Any, *inputs: Any) -> Any:
        torch._dynamo.reset()
        with torch.no_grad():
            return torch.compile(model, backend=self.backend, fullgraph=True, dynamic=False)(*inputs)

    @property
    def text(self) -> str:
        """Text of the last region."""
        return list(self.texts.values())[-1]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, from its first element on."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return torch.as_strided(tensor, (count,), (1,), tensor.storage_offset())


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Logical:
    """A compiler to logical KTIR whose kernels are evaluated."""
    made = Logical()
    _installed(made, monkeypatch)
    return made


class Loops(Logical):
    """A model compiled to regions that the loop interpreter beside this file runs; several regions are several kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, Region] = {}
        self._run = _sibling("loops").run

    def compile_region(self, region: Region) -> str:
        text = region.to_json()
        assert Region.from_json(text) == region
        self.regions.append(region)
        key = hashlib.sha256(text.encode()).hexdigest()
        self.by_key[key] = region
        return key

    def kernel(self, key: str) -> Callable[..., None]:
        def launch(*tensors: torch.Tensor) -> None:
            self.launches += 1
            self._run(self.by_key[key], tensors)

        return launch


def _installed(made: Logical, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated wrappers take their kernels from `made`."""
    stub = ModuleType("ktir.runtime.cache")
    vars(stub)["kernel"] = lambda key, strict=False: made.kernel(key)
    monkeypatch.setitem(sys.modules, "ktir.runtime.cache", stub)
    monkeypatch.setattr(ktir.runtime, "cache", stub, raising=False)
    monkeypatch.setattr(artifacts, "note", lambda key: None)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Loops:
    """A compiler to regions whose kernels are interpreted."""
    made = Loops()
    _installed(made, monkeypatch)
    return made


@pytest.fixture
def check(compiled: Logical) -> Callable[..., str]:
    """Assert that a model gives eager's values, and return the logical text."""

    def compare(model: Any, *inputs: Any, rtol: float = 4e-3, atol: float = 4e-3, launches: int = 1) -> str:
        before = compiled.launches
        with torch.no_grad():
            expected, shape = tree_flatten_with_path(model(*inputs))
        actual, same = tree_flatten(compiled.run(model, *inputs))
        assert compiled.launches - before == launches
        assert same == shape
        for (path, e), a in zip(expected, actual, strict=True):
            where = keystr(path)
            assert a.stride() == e.stride() or e.numel() == 1, where
            torch.testing.assert_close(a, e, rtol=rtol, atol=atol, msg=lambda text, where=where: f"{where}: {text}")
        return compiled.text if compiled.texts else ""

    return compare
