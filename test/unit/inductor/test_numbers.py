"""Python numbers that change between calls are arguments of one program of the chip: no compilation per value."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import wrapper

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
}


def check(programs: list[Any], function: Callable[..., Any], numbers: list[Any], dtype: torch.dtype) -> None:
    compiled = torch.compile(function, backend="spyre", fullgraph=True, options={"cores": 2, "fallback": "error"})
    x = X.to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    for i, number in enumerate(numbers):
        if i == 2:
            programs.clear()
        found, expected = compiled(x, number), function(x, number)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert not programs  # the second value, a symbol, was the last compilation


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(programs: list[Any], name: str) -> None:
    check(programs, INTEGERS[name], [3, 4, 17, -5, 60], torch.float16)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_floats(programs: list[Any], name: str, dtype: torch.dtype) -> None:
    check(programs, FLOATS[name], [0.1, 0.7, 3.3, -1.7, 1e-2], dtype)
    assert all(b.dtype != "float64" for region in programs for b in region.buffers.values())


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
