"""Kernels for operators that PyTorch has, in compiled graphs and in eager on the device. The kernels here are
wrong, so that they are seen.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import ktir.library
from ktir import lang
from ktir.device.autoload import register
from ktir.diagnostics import KtirError
from ktir.lowering.inductor.running import calls
from ktir.runtime import metrics

register()
aten = torch.ops.aten
X = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(calls.implementations)
    yield
    calls.implementations.clear()
    calls.implementations.update(before)


@lang.kernel
def shifted(x, y, *, by=100):
    y[:] = x[:] + by


def same(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def compiled(function: Any, *inputs: torch.Tensor) -> Any:
    torch._dynamo.reset()
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(function, backend="ktir", dynamic=False, fullgraph=True)(*inputs)
    assert launches() == metrics.Launches(chip=1)
    return found


def test_graphs_and_eager_on_the_device_call_it() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hardswish(x * 2)

    right = compiled(model, X)
    torch.testing.assert_close(right, model(X))
    torch.nn.functional.hardswish(X.to("spyre"))
    ktir.library.implement(aten.hardswish.default, shifted)(same)
    assert torch.equal(compiled(model, X), X * 2 + 100)
    assert torch.equal(compiled(model, X.to("spyre")).cpu(), X * 2 + 100)
    with metrics.counted() as launches:
        assert torch.equal(torch.nn.functional.hardswish(X.to("spyre")).cpu(), X + 100)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(model(X), torch.nn.functional.hardswish(X * 2))  # eager on the host is PyTorch's
    del calls.implementations[aten.hardswish.default]
    assert torch.equal(compiled(model, X), right)


def test_a_matmul_for_some_types() -> None:
    @lang.kernel
    def product(a, b, c):
        for rows in lang.blocks(a.shape[0]):
            c[rows] = lang.dot(a[rows], b[:]) + 100

    def sizes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.new_empty(a.shape[0], b.shape[1])

    ktir.library.implement(aten.mm.default, product, when=lambda a, b: a.dtype == torch.float16)(sizes)
    a, b = X[:4, :64].half(), X[:1, :64].half().T.expand(64, 64)
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(torch.mm, backend="ktir", dynamic=False)(a, b)
    assert launches() == metrics.Launches(chip=1)
    torch.testing.assert_close(found.double(), a.double() @ b.double() + 100, atol=0.1, rtol=1e-3)
    torch.testing.assert_close(compiled(torch.mm, X, X.T.contiguous()), X @ X.T)


def test_further_arguments_have_their_defaults() -> None:
    ktir.library.implement(aten.gelu.default, shifted)(same)
    gelu = torch.nn.functional.gelu
    assert torch.equal(compiled(lambda x: gelu(x), X), X + 100)
    torch.testing.assert_close(compiled(lambda x: gelu(x, approximate="tanh"), X), gelu(X, approximate="tanh"))


def test_wrong_ones() -> None:
    for op, words in (
        (aten.silu, "expects an overload of an operator, as torch.ops.aten.silu.default"),
        (aten.silu_.default, "'aten.silu_.default' writes to its arguments"),
        (aten.softmax.int, "'aten.softmax.int' is taken apart before any graph has it"),
    ):
        with pytest.raises(KtirError) as caught:
            ktir.library.implement(op, shifted)
        assert words in str(caught.value)
