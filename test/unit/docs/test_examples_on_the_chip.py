"""The kernels of the pages reach the chip: each has the executor's bits there."""

import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from example_blocks import _LINE, Example, examples, value

from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.runtime import metrics
from ktir.runtime.executable import Executable

DOCS = Path(__file__).resolve().parents[3] / "docs"


def kernels() -> list[Example]:
    """The examples that have arrays, and results; a program of a lower level is no kernel."""
    pages = [p for p in sorted(DOCS.rglob("*.md")) if "generated" not in p.relative_to(DOCS).parts and p.name != "README.md"]
    found = [e for page in pages for e in examples(page, page.relative_to(DOCS).as_posix())]
    return [e for e in found if "// given " in e.text and "expected-error" not in e.text and "ktir.level" not in e.text]


def compiled(text: str, given: list[Any]) -> Package:
    numbers = tuple(f"{i}={v}" for i, v in enumerate(given) if not isinstance(v, np.ndarray))
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module(text, "kernel.mlir"), numbers=numbers))


@pytest.mark.parametrize("example", kernels(), ids=lambda e: e.where)
def test_on_the_chip(example: Example) -> None:
    given = [value(kind, text) for role, _, kind, text in _LINE.findall(example.text) if role == "given"]
    executable = Executable(compiled(example.text, given))
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    execute(example.text, None, wanted)
    arrays = [a.copy() for a in given if isinstance(a, np.ndarray)]
    parts = [a.reshape(-1)[: prod(h.size)].reshape(h.size) for a, h in zip(arrays, executable.spec.hosts, strict=True)]
    with metrics.counted() as launches:
        executable(*parts)
    assert launches().chip == 1
    for found, expected in zip(arrays, [a for a in wanted if isinstance(a, np.ndarray)], strict=True):
        assert found.tobytes() == expected.tobytes()
