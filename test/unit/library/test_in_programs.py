"""Operators made of kernels that nobody has divided, or that are lifted, are parts of compiled programs: one launch, and values."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from combinations import each_once
from torch.utils._python_dispatch import TorchDispatchMode

import ktir.library
from ktir import lang
from ktir.device.autoload import register
from ktir.runtime import executable, metrics

register()
sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from kernels import flash_attention, softmax  # noqa: E402  # pyright: ignore[reportMissingImports]

X = torch.randn(9, 100, generator=torch.Generator().manual_seed(0)).half()
DEVICES = ("cpu", "spyre")


@ktir.library.operator("parts::softmax", softmax)
def softmax_op(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@ktir.library.operator("parts::lifted", softmax[3].using(way="lift"))
def lifted_op(x: torch.Tensor, block: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


@ktir.library.operator("parts::chosen", softmax[1].using(way="auto", tolerance=2e-3))
def chosen_op(x: torch.Tensor, block: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


@ktir.library.operator("parts::attention", flash_attention[3].using(way="lift"))
def attention_op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(q)


@lang.kernel
def extremes(x, low, high):
    low[:] = x[:].min(-1)
    high[:] = x[:].max(-1)


@ktir.library.operator("parts::extremes", extremes)
def extremes_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0]), x.new_empty(x.shape[0])


@lang.kernel
def weighted(x, y, z, *, a):
    z[:] = x[:] * a + y[:]


@ktir.library.operator("parts::weighted", weighted)
def weighted_op(x: torch.Tensor, y: torch.Tensor, a: float) -> torch.Tensor:
    return torch.empty_like(x)


def low_of_both(x: torch.Tensor) -> Any:
    low, _ = extremes_op(x)
    _, high = extremes_op(x * 2)
    return low - high


def written_later(x: torch.Tensor) -> Any:
    y = x + 1
    z = weighted_op(y, x, 2.0)
    y.mul_(3)
    return y, z, weighted_op(y, z, 1.0)


def of_constants(x: torch.Tensor) -> Any:
    return weighted_op(torch.ones_like(x), x[0].expand_as(x), 0.5), weighted_op(x, x, -1.0)


def of_parts(x: torch.Tensor) -> Any:
    return weighted_op(x[2:5], x[:, 3:].reshape(-1)[:300].view(3, 100), 2.0), softmax_op(x[4:]).sum(-1)


def alone(x: torch.Tensor) -> Any:
    return softmax_op(x)


def chained(x: torch.Tensor) -> Any:
    low, high = extremes_op(softmax_op(x * 2) @ x.T)
    return high.relu() - low, softmax_op(x)


def put_together(x: torch.Tensor) -> Any:
    return torch.cat((softmax_op(x) + 1, softmax_op(x * 2), x))


def on_grids(x: torch.Tensor) -> Any:
    return lifted_op(x * 2).sum(-1) - chosen_op(x, 3) @ x[0]


def attending(x: torch.Tensor) -> Any:
    q = x[:, :64].reshape(1, 9, 64)
    return attention_op(q * 0.5, q, q.flip(1)).transpose(0, 1).reshape(9, 64) + x[:, 36:]


CALLS: dict[Any, Callable[..., Any]] = {
    torch.ops.parts.softmax.default: lambda x: torch.softmax(x, -1),
    torch.ops.parts.lifted.default: lambda x, block=2: torch.softmax(x, -1),
    torch.ops.parts.chosen.default: lambda x, block=2: torch.softmax(x, -1),
    torch.ops.parts.attention.default: lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    torch.ops.parts.extremes.default: lambda x: (x.min(-1).values, x.max(-1).values),
    torch.ops.parts.weighted.default: lambda x, y, a: x * a + y,
}


MODELS = [low_of_both, written_later, of_constants, of_parts, alone, chained, put_together, on_grids, attending]


class InTorch(TorchDispatchMode):
    """Computes the operators by PyTorch's own."""

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return CALLS.get(func, func)(*args, **(kwargs or {}))


@pytest.mark.parametrize(("model", "device"), each_once(MODELS, DEVICES))
def test_one_launch(model: Callable[..., Any], device: str, caplog: pytest.LogCaptureFixture) -> None:
    with InTorch():
        expected = model(X.double())
    with torch.no_grad():
        call = torch.compile(model, backend="ktir", dynamic=False, fullgraph=True)
        found = call(X.to(device))
        with metrics.counted() as launches:
            again = call(X.to(device))
    assert launches() == metrics.Launches(chip=1)
    for one, two, wanted in zip(*([t] if isinstance(t, torch.Tensor) else t for t in (found, again, expected)), strict=True):
        assert torch.equal(one.cpu(), two.cpu())
        torch.testing.assert_close(one.cpu().double(), wanted, atol=2e-2, rtol=4e-3)
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


@ktir.library.operator("parts::on_tiles", softmax[3])
def on_tiles_op(x: torch.Tensor, block: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


def test_inputs_in_another_order_are_not_copied() -> None:
    """The host arranges them; what a program changes is copied."""
    x = X[:, :64].contiguous()

    def turned(x: torch.Tensor) -> torch.Tensor:
        return on_tiles_op(x.view(3, 3, 8, 8).permute(2, 3, 1, 0).reshape(64, 9))

    def changed(x: torch.Tensor) -> torch.Tensor:
        y = on_tiles_op(x.T.contiguous())
        return on_tiles_op(x.add_(y.T).T.contiguous())

    before = torch.softmax(x.T.float(), -1)
    for model, wanted, alone in ((turned, x.view(3, 3, 8, 8).permute(2, 3, 1, 0).reshape(64, 9), True), (changed, x.T + before, False)):
        torch._dynamo.reset()
        with torch.no_grad(), executable.recorded() as launches:
            found = torch.compile(model, backend="ktir", dynamic=False, fullgraph=True)(x.clone())
        (launch,) = launches
        torch.testing.assert_close(found.float(), torch.softmax(wanted.float(), -1), atol=2e-3, rtol=2e-3)
        assert (len(launch.machine.report.kernels) == 1) == alone


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(100, 100, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softmax_op(self.linear(x))


def test_repeated_layers_are_one_launch() -> None:
    layers = torch.nn.Sequential(Layer(), Layer()).requires_grad_(False)
    wide = X.double()
    layer: Any
    for layer in layers:
        wide = torch.softmax(wide @ layer.linear.weight.double().T + layer.linear.bias.double(), -1)
    nested = torch.nn.Sequential(*map(ktir.nested, layers))
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(nested, backend="ktir", dynamic=False)(X)
    assert launches() == metrics.Launches(chip=1)
    torch.testing.assert_close(found.double(), wide, atol=2e-3, rtol=4e-3)


def test_executor_runs_it_in_one_launch() -> None:
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(chained, backend="ktir", dynamic=False, options={"engine": "ktir"})(X)
    assert launches() == metrics.Launches(executor=1)
    torch.testing.assert_close(found[1].double(), torch.softmax(X.double(), -1), atol=2e-3, rtol=2e-3)


def test_another_kernel_is_another_program() -> None:
    """A kernel reads a number from around it: what was compiled before the number changed is not taken again."""
    number = [2.0]

    @lang.kernel
    def times(x, y):
        y[:] = x[:] * number[0]

    @ktir.library.operator("parts::times", times)
    def times_op(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    for number[0] in (2.0, 4.0):
        torch._dynamo.reset()
        with torch.no_grad():
            assert torch.equal(torch.compile(lambda x: times_op(x) + 1, backend="ktir", dynamic=False)(X), X * number[0] + 1)
        assert torch.equal(times_op(X), X * number[0])


def test_a_kernel_that_the_chip_does_not_take(caplog: pytest.LogCaptureFixture) -> None:
    """It is launched alone, on the executor; the program around it stays on the chip."""

    @lang.kernel
    def counted(x, y):
        for rows in lang.blocks(x.shape[0]):
            y[rows] = x[rows].astype(np.float64) * 0.5  # a type that the chip does not have

    @ktir.library.operator("parts::counted", counted)
    def counted_op(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(lambda x: counted_op(x * 2) + 1, backend="ktir", dynamic=False)(X)
    torch.testing.assert_close(found.double(), X.double() + 1, atol=2e-2, rtol=4e-3)
    assert launches() == metrics.Launches(chip=2, executor=1)
    assert "'parts::counted'" in caplog.text


@lang.kernel
def bumped(c, x, y):
    y[...] = c[:] + x[:]
    c[...] = c[:] * 2


@ktir.library.operator("parts::bumped", bumped, mutates_args=("c",))
def bumped_op(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _bumped(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = c + x
    c.mul_(2)
    return y


@pytest.mark.parametrize("f", [lambda op, c, x: op(c, x) + c, lambda op, c, x: op(c, op(c, x)) - c, lambda op, c, x: op(c, x)])
def test_memory_that_is_read_and_written_through_one_tile(f: Callable[..., torch.Tensor]) -> None:
    """What a kernel reads of an argument that it writes, too, is there, whatever calls it and reads it afterwards."""
    c, x = torch.randn(6, 70), torch.randn(6, 70)
    mine, wanted = c.clone(), f(_bumped, c, x)
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(lambda c, x: f(bumped_op, c, x), backend="ktir", dynamic=False)(mine, x)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(found, wanted)
    assert torch.equal(mine, c)


def test_a_graph_that_is_one_kernel_with_a_grid() -> None:
    """Nothing is left to be formed there."""

    @lang.kernel
    def doubled(x, y):
        for rows in lang.blocks(x.shape[0], 2):
            y[rows] = x[rows] * 2

    @ktir.library.operator("parts::doubled", doubled[3])
    def doubled_op(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.randn(6, 70)
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(lambda x: doubled_op(x), backend="ktir", dynamic=False)(x)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(found, x * 2)
