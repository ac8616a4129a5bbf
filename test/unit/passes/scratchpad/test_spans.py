"""Tensors that are larger than what an address spans, on a machine whose addresses span little. PyTorch in f64 is the oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

import ktir
from ktir import config
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.isa import addresses
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.runtime import executable

pytestmark = pytest.mark.usefixtures("on_chip")
SPAN = 64 * 1024
"""Bytes: 8 columns of sticks of 64 rows."""


@pytest.fixture
def near(tmp_path: Path) -> str:
    """The file of a target whose addresses span little."""
    (tmp_path / "near.toml").write_text(f"span_bytes = {SPAN}\n")
    return str(tmp_path / "near.toml")


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).half()


ROWS = torch.tensor([299, 0, 7, 7, 64, 123, 255])
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "element by element": (lambda x: x * 2 + 1, (half(300, 1000),)),
    "rows": (lambda x: torch.softmax(x, -1), (half(300, 1000),)),
    "columns": (lambda x: x.sum(0), (half(300, 1000),)),
    "another order": (lambda x: x.t() * 1.5, (half(300, 1000),)),
    "looked up": (lambda w: F.embedding(ROWS, w), (half(300, 1000),)),
    "f32": (lambda x: x.float() * 3, (half(300, 1000),)),
    "integers": (lambda x: (x * 16).to(torch.int32) + 1, (half(300, 1000),)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, near: str) -> None:
    function, inputs = CASES[name]
    torch._dynamo.reset()
    options: dict[str, Any] = {"fallback": "error", "target": near}
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(function, backend="spyre", dynamic=False, options=options)(*inputs)
    (launch,) = launches
    assert launch.machine.target.span_bytes == SPAN
    assert max(x.numel() * x.element_size() for x in inputs) > SPAN
    wanted = function(*(x.double() for x in inputs))
    if got.dtype == torch.int32:
        assert torch.equal(got, function(*inputs))
    else:
        torch.testing.assert_close(got.double(), wanted.double(), rtol=2**-9, atol=2**-14)


def compiled(name: str, near: str | None) -> Any:
    function, inputs = CASES[name]
    text = ktir.capture(function, *inputs)
    with config.patch(**({"target": near} if near else {})), context(), ir.Location.unknown():
        return text, read(compile_logical(parse_module(text)))


def run_something() -> None:
    """A launch, as the fixture asks for one."""
    torch._dynamo.reset()
    torch.compile(torch.neg, backend="spyre")(torch.ones(4).half())


def test_as_few_parts_as_can_be(near: str) -> None:
    run_something()
    _, package = compiled("element by element", near)
    program = package.program
    (kernel,) = program.kernels
    for unit, words in kernel.units.items():
        moved = [d for w in words if w.op == "move" for n in ("src", "dst") if (d := kernel.descriptors[w[n]]).arg is not None]
        if moved:
            assert len(moved) > 1, unit
            spans = [addresses.core_span(d, kernel, {0: 99, 1: 99, 2: 99}, 0) for d in moved]
            assert max(spans) <= SPAN
            assert sum(d.extent[0] for d in moved) == 16
    _, whole = compiled("element by element", None)
    words = [w for ws in whole.program.kernels[0].units.values() for w in ws if w.op == "move"]
    assert len(words) == 2, "where addresses reach, nothing is cut"


@pytest.mark.parametrize("name", ["element by element", "f32", "rows"])
def test_every_level_has_the_same_bits(name: str, near: str) -> None:
    run_something()
    function, inputs = CASES[name]
    text, _ = compiled(name, None)
    wanted = function(*inputs).numpy()
    arrays = [*(x.numpy() for x in inputs), np.zeros_like(wanted)]
    with config.patch(target=near):
        *_, tape, step = check_levels(text, arrays)
    assert (tape.arrays[-1] == step.arrays[-1]).all()
    np.testing.assert_allclose(tape.arrays[-1].astype(np.float64), wanted.astype(np.float64), rtol=2**-9, atol=2**-14)


def small_integers(*shape: int) -> torch.Tensor:
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(2)).half()


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "rows at once": (lambda x, w: x @ w, (small_integers(512, 1024), small_integers(1024, 256))),
    "rows stick by stick": (lambda x, w: x @ w, (small_integers(1024, 4096), small_integers(4096, 128))),
    "odd": (lambda x, w: x @ w, (small_integers(300, 2001), small_integers(2001, 191))),
    "read by others": (lambda x, w, v: (x @ w) * 2 + x @ v, (small_integers(256, 1024), *(small_integers(1024, 192) for _ in "wv"))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_go_on_where_a_loop_has_been_cut(name: str, near: str) -> None:
    """Small integers, so every sum is exact; the loop over K is several, and each goes on with the sums of the one before."""
    function, inputs = PRODUCTS[name]
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(function, backend="spyre", dynamic=False, options={"fallback": "error", "target": near})(*inputs)
    assert len(launches) == 1
    wanted = function(*(x.double() for x in inputs))
    assert torch.equal(got.double(), wanted)
    text = ktir.capture(function, *inputs)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(target=near).text())
        assert str(module).count("iter_args") >= 2 * len(re.findall("linalg.matmul", text))
    with config.patch(target=near):
        *_, tape, step = check_levels(text, [*(x.numpy() for x in inputs), np.zeros(wanted.shape, np.float16)])
    for ran in (tape, step):
        assert np.array_equal(ran.arrays[-1].astype(np.float64), wanted.numpy())


def written(x: torch.Tensor, rows: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x.index_copy_(0, rows, v)
    return x[rows] * 2


def test_rows_that_no_address_reaches_are_refused_by_name(near: str) -> None:
    options: dict[str, Any] = {"target": near, "fallback": "error"}
    compiled = torch.compile(written, backend="spyre", dynamic=False, options=options)
    x, rows, v = half(300, 128), torch.tensor([7, 299]), half(2, 128)
    torch._dynamo.reset()
    with pytest.raises(BackendCompilerFailed) as refused:
        compiled(x, rows, v)
    told = str(refused.value)
    assert re.search(r"test_spans.py:\d+:1: error: 'aten.index_put_' of int64 \[2\] and float16 \[2, 128\] to float16 \[300, 128\]", told)
    assert "op writes to rows that indices choose among 76,544 bytes, but an address reaches 65,536" in told
    few = half(200, 128)
    torch._dynamo.reset()
    assert torch.equal(compiled(few, rows % 200, v), v * 2)
    assert torch.equal(few[rows % 200], v)
