"""The kernels of the pages reach the chip: each has the executor's bits there, or is refused by op and place."""

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
from ktir.diagnostics import KtirError
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.runtime import metrics
from ktir.runtime.executable import Executable

DOCS = Path(__file__).resolve().parents[3] / "docs"
REFUSED = {
    "spec/access-tiles.md": ("has rows along two dims that are no one dim in memory", "computes a subscript"),
    "spec/communication.md": ("expects to contribute one tensor", "'ktdp.inter_tile_gather' op is not pinned yet"),
    "spec/execution.md": ("its elements are i64", "takes a 'ktdp.runtime_arg'"),
    "spec/memory.md": ("expects tiles of the scratchpad with a multiple of 64 elements",),
    "spec/numerics.md": ("'linalg.matmul' op expects 'outs' without content or filled with 0.0",),
}
"""By page, what stands in the way of kernels that only the executor runs."""


def kernels() -> list[Example]:
    """The examples that have arrays, and results."""
    pages = [p for p in sorted(DOCS.rglob("*.md")) if "generated" not in p.relative_to(DOCS).parts and p.name != "README.md"]
    found = [e for page in pages for e in examples(page, page.relative_to(DOCS).as_posix())]
    return [e for e in found if "// given " in e.text and "expected-error" not in e.text]


def compiled(text: str, given: list[Any]) -> tuple[Package | None, KtirError | None]:
    numbers = tuple(f"{i}={v}" for i, v in enumerate(given) if not isinstance(v, np.ndarray))
    with context(), ir.Location.unknown():
        try:
            return read(compile_logical(parse_module(text, "kernel.mlir"), numbers=numbers)), None
        except KtirError as error:
            return None, error


@pytest.mark.parametrize("example", kernels(), ids=lambda e: e.where)
def test_on_the_chip(example: Example) -> None:
    given = [value(kind, text) for role, _, kind, text in _LINE.findall(example.text) if role == "given"]
    package, error = compiled(example.text, given)
    if package is None:
        assert error is not None
        assert any(reason in error.message for reason in REFUSED[example.where.partition(":")[0]]), error
        assert (error.location or "").startswith("kernel.mlir:")
        return
    executable = Executable(package)
    wanted = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    execute(example.text, None, wanted)
    arrays = [a.copy() for a in given if isinstance(a, np.ndarray)]
    parts = [a.reshape(-1)[: prod(h.size)].reshape(h.size) for a, h in zip(arrays, executable.spec.hosts, strict=True)]
    with metrics.counted() as launches:
        executable(*parts)
    assert launches().chip == 1
    for found, expected in zip(arrays, [a for a in wanted if isinstance(a, np.ndarray)], strict=True):
        assert found.tobytes() == expected.tobytes()


def test_most_run() -> None:
    """A list of what is refused may grow unseen; the number of what runs may not fall."""
    given = [[value(kind, text) for role, _, kind, text in _LINE.findall(e.text) if role == "given"] for e in kernels()]
    assert sum(compiled(e.text, g)[0] is not None for e, g in zip(kernels(), given, strict=True)) >= 16
