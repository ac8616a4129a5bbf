"""Where messages about kernels point: into the Python file, never into the text that was made of it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ktir import lang
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.mlir import ir

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import kernels  # pyright: ignore[reportMissingImports]

CASES = {call.function.__name__: (call, arrays, parameters) for call, arrays, parameters, _ in kernels.cases()}  # pyright: ignore[reportAttributeAccessIssue]


def places(op: ir.Operation) -> Iterator[tuple[str, str]]:
    """Of an op and those in it; of blocks, the arguments of functions."""
    yield op.name, str(op.location)
    for block in (b for region in op.regions for b in region):
        if op.name == "func.func":
            yield from (("argument", str(a.location)) for a in block.arguments)
        for inner in block:
            yield from places(inner.operation)


@pytest.mark.parametrize("name", CASES)
def test_all_ops(name: str) -> None:
    call, arrays, parameters = CASES[name]
    file, (lines, first) = inspect.getfile(call.function), inspect.getsourcelines(call.function)
    with context(), ir.Location.unknown():
        found = list(places(parse_module(call.traced(*arrays, **parameters).text, "text").operation))
    assert len(found) > 20
    for op, place in found:
        at = re.fullmatch(r'loc\("(.*)":(\d+):\d+(?: to :\d+)?\)', place)
        assert at is not None, (op, place)
        assert Path(at[1]).name == Path(file).name, (op, place)
    of_function = [place for op, place in found if op in ("func.func", "argument")]
    assert all(first <= int(place.split(":")[-2]) <= first + len(lines) for place in of_function)


@lang.kernel
def narrowed(x: NDArray[np.float64], y: NDArray[np.float16]) -> None:
    for rows in lang.blocks(y.shape[0], None):
        y[rows] = x[rows].astype(np.float16)


def test_arguments() -> None:
    """What the chip refuses of an argument is told at the kernel."""
    _, first = inspect.getsourcelines(narrowed.function)
    with pytest.raises(KtirError, match="its elements are f64") as error:
        narrowed[4].using(on="chip")(np.ones((16, 64), np.float64), np.zeros((16, 64), np.float16))
    assert f"{Path(__file__).name}:{first}:" in str(error.value) or f"{Path(__file__).name}:{first + 1}:" in str(error.value)
