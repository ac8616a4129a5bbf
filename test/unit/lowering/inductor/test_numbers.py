"""Python numbers that change between calls are arguments of one program of the chip: no compilation per value."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import each_once
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._dynamo.utils import guard_failures
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import wrapper
from ktir.runtime import metrics

pytestmark = pytest.mark.usefixtures("on_chip")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The regions that are compiled."""
    found: list[Any] = []
    compile_region = wrapper.compile_region
    monkeypatch.setattr(wrapper, "compile_region", lambda region: found.append(region) or compile_region(region))
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    with fresh_cache(), torch.no_grad():
        yield found


X = torch.linspace(-3, 3, 5 * 70).reshape(5, 70)
INTEGERS: dict[str, Callable[..., Any]] = {
    "plus": lambda x, n: x + n,
    "of integers": lambda x, n: x.long() * n - n,
    "position": lambda x, n: x * (torch.arange(x.shape[-1]) < n),
}
FLOATS: dict[str, Callable[..., Any]] = {
    "temperature": lambda x, t: (x / t).relu(),
    "from the left": lambda x, t: t - x * t,
    "expression": lambda x, t: x * (t * 2 + 1) - t,
    "compared": lambda x, t: x > t,
    "of integers": lambda x, t: x.long() * t,
    "matmul": lambda x, t: (x @ x.t()) * t,
    "computed": lambda x, t: x * (abs(t) ** 0.5 + max(t, 0.5)) / (1 / t) * float(int(t * 10)),
    "clamp": lambda x, t: x.clamp(-t, t),
    "clamp of integers": lambda x, t: (x * 9).int().clamp(min=t),
    "where": lambda x, t: torch.where(x > 0, x, t),
    "where of numbers": lambda x, t: torch.where(x > 0, t, -t),
    "masked_fill": lambda x, t: x.masked_fill(x > 0, t),
    "full_like": lambda x, t: torch.full_like(x, t) * x,
    "power": lambda x, t: (x.abs() + 0.5) ** t,
    "power of the number": lambda x, t: abs(t) ** x,
    "lerp": lambda x, t: torch.lerp(x, x.abs(), t),
    "fmod": lambda x, t: torch.fmod(x, t),
    "remainder": lambda x, t: x % t,
    "remainder of the number": lambda x, t: t % x,
    "floor division": lambda x, t: x // t,
    "floor division of the number": lambda x, t: t // x,
    "rounded quotient": lambda x, t: torch.div(x, t, rounding_mode="trunc"),
    "times a number": lambda x, t: torch.add(x, x.abs(), alpha=t) - torch.sub(x.abs(), x, alpha=t),
    "copysign": lambda x, t: torch.copysign(x, t),
    "xlogy": lambda x, t: torch.xlogy(x, abs(t)) + torch.xlogy(t, x.abs() + 0.5),
    "addmm": lambda x, t: torch.addmm(x[:, :5], x / 8, x.t() / 8, beta=t, alpha=t * 2),
    "baddbmm": lambda x, t: torch.baddbmm(x[None, :, :5], x[None] / 8, x.t()[None] / 8, alpha=t),
    "scatter": lambda x, t: torch.scatter(x[0], 0, torch.tensor([3, 68]), t),
    "list": lambda x, t: torch.ops.aten._foreach_add([x, x.abs()], t)[1],
    "hardtanh": lambda x, t: torch.nn.functional.hardtanh(x, -abs(t), abs(t)),
}


def side_by_side(functions: dict[str, Callable[..., Any]]) -> Callable[..., dict[str, Any]]:
    """Functions in one graph, each of a tensor and a number of its own."""
    return lambda xs, *each: {name: f(x, number) for (name, f), x, number in zip(functions.items(), xs, each, strict=True)}


def check(programs: list[Any], functions: dict[str, Callable[..., Any]], numbers: list[Any], dtype: torch.dtype) -> None:
    model = side_by_side(functions)
    compiled = torch.compile(model, backend="spyre", fullgraph=True, options={"cores": 2, "fallback": "error"})
    xs, regions = [X.to(dtype, copy=True) for _ in functions], 0
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    for i, number in enumerate(numbers):
        if i == 2:
            regions = len(programs)
        found = compiled(xs, *[number] * len(xs))
        for name, expected in model(xs, *[number] * len(xs)).items():
            assert found[name].dtype == expected.dtype, name
            where = f"{name} {number}"
            torch.testing.assert_close(
                found[name], expected, rtol=tolerance, atol=tolerance, msg=lambda text, where=where: f"{where}: {text}"
            )
    why = [reason.partition("\n")[0] for reasons in guard_failures.values() for reason in reasons]
    assert len(programs) == regions, f"the second value, a symbol, was not the last compilation: {why}"


def test_integers(programs: list[Any]) -> None:
    check(programs, INTEGERS, [3, 4, 17, -5, 60], torch.float16)


@pytest.mark.turn
@pytest.mark.parametrize(("dtype", "part"), each_once([torch.float16, torch.float32], range(2)))
def test_floats(programs: list[Any], dtype: torch.dtype, part: int) -> None:
    check(programs, dict(list(FLOATS.items())[part::2]), [0.1, 0.7, 3.3, -1.7, 1e-2], dtype)
    assert all(b.dtype != "float64" for region in programs for b in region.buffers.values())


JUMPS: dict[str, Callable[..., Any]] = {
    ">": lambda x, t: x > t,
    ">=": lambda x, t: x >= t,
    "==": lambda x, t: x == t,
    "fmod": lambda x, t: torch.fmod(x, t),
    "remainder": lambda x, t: x % t,
    "floor division": lambda x, t: x // t,
    "clamp": lambda x, t: x.clamp(min=t),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_twenty_floats_in_a_row(programs: list[Any], dtype: torch.dtype) -> None:
    """Two programs, and eager's bits also where an element is the number as its type holds it."""
    numbers = [0.1 * k + 0.3 for k in range(20)]
    xs = [torch.tensor([s * n for n in numbers for s in (1, -1, 3)], dtype=dtype) for _ in JUMPS]
    model = side_by_side(JUMPS)
    compiled = torch.compile(model, backend="spyre", fullgraph=True, options={"cores": 2, "fallback": "error"})
    for number in numbers:
        with metrics.counted() as launches:
            found = compiled(xs, *[number] * len(xs))
        assert launches() == metrics.Launches(chip=1, executor=0, torch=0)
        for name, expected in model(xs, *[number] * len(xs)).items():
            assert torch.equal(found[name], expected), (name, number)
    assert len(programs) == 2


def test_a_number_that_every_value_compiles() -> None:
    """It stays on the chip beyond the recompilations that PyTorch allows its own code, before it leaves a function to eager."""
    torch._dynamo.reset()

    def norm(x: torch.Tensor, eps: float) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (70,), eps=eps)

    compiled = torch.compile(norm, backend="spyre", options={"cores": 2})
    for number in [0.1 * k + 0.1 for k in range(10)]:
        with metrics.counted() as launches, torch.no_grad():
            found = compiled(X, number)
        assert launches().chip
        torch.testing.assert_close(found, norm(X, number), rtol=1e-5, atol=1e-5)


def test_a_limit_of_the_user() -> None:
    """With `fallback="error"` a function that is compiled too often is refused, not left to eager."""
    torch._dynamo.reset()
    norm = torch.compile(lambda x, eps: torch.nn.functional.layer_norm(x, (70,), eps=eps), backend="spyre", options={"fallback": "error"})
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=2):
        norm(X, 0.1)
        norm(X, 0.2)
        with pytest.raises(FailOnRecompileLimitHit):
            norm(X, 0.3)


FROZEN: dict[str, Callable[..., Any]] = {
    "masked fill": lambda x, b: x.masked_fill(x > b, b),
    "clamp beside a comparison": lambda x, b: torch.where(x > b, x.clamp(min=b), x * b),
    "filled": lambda x, b: torch.full_like(x, b) + (x > b),
    "quotient and bound": lambda x, b: (x / b).clamp(max=b),
}


@pytest.mark.parametrize("name", FROZEN)
def test_uses_that_torch_freezes(name: str) -> None:
    """One use of the number is an argument, another one a constant of what is compiled: no cache may take that for another number."""
    torch._dynamo.reset()
    compiled = torch.compile(FROZEN[name], backend="spyre")
    for number in (2.5, 0.125, 3.0, -3.25):
        torch.testing.assert_close(compiled(X, number), FROZEN[name](X, number))


def test_integers_as_exponents() -> None:
    torch._dynamo.reset()
    power, x = (lambda x, n: x**n), torch.arange(5)
    compiled = torch.compile(power, backend="spyre")
    for number in (2, 3, 4):
        assert torch.equal(compiled(x, number), power(x, number))
