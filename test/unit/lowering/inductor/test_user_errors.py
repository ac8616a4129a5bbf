"""What is wrong with the user's data is said in PyTorch's words with the user's line, and nothing else is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import ktir.lowering.inductor  # noqa: F401  registers the backends
from ktir.diagnostics import KtirError

Wrong = tuple[Callable[..., Any], tuple[Any, ...]]
WRONG: dict[str, Wrong] = {
    "index": (lambda x, i: x[i], (torch.ones(10, 3), torch.tensor([0, 10]))),
    "index from the end": (lambda x, i: x[i], (torch.ones(10, 3), torch.tensor([0, -11]))),
    "target": (F.cross_entropy, (torch.ones(2, 3), torch.tensor([3, 1]))),
    "zero": (lambda a, b: a // b, (torch.arange(70), torch.zeros(70, dtype=torch.long))),
    "scatter": (lambda x, i, v: x.scatter_add(0, i, v), (torch.ones(10), torch.tensor([0, -1]), torch.ones(2))),
}


@pytest.mark.parametrize("fallback", ["cpu", "error"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_data_that_torch_refuses(wrong: Wrong, fallback: str, capfd: pytest.CaptureFixture[str]) -> None:
    function, inputs = wrong
    torch._dynamo.reset()
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        function(*inputs)
    compiled = torch.compile(lambda *x: function(*x), backend="ktir", dynamic=False, options={"fallback": fallback})
    with pytest.raises(type(theirs.value)) as ours:
        compiled(*inputs)
    place, _, said = str(ours.value).partition(": error: ")
    assert said == str(theirs.value)
    assert fallback == "error" or place.startswith(__file__) or "torch" in function.__module__
    assert "Traceback" not in "".join(capfd.readouterr())


PRODUCTS: dict[str, Callable[..., Any]] = {
    "@": lambda a, b: a @ b,
    "mm": torch.mm,
    "a method": lambda a, b: a.matmul(b),
    "mv": lambda a, b: a.mv(b[0]),
    "dot": lambda a, b: a[0].dot(b[0]),
    "addmm": lambda a, b: torch.addmm(b, a, b),
    "addbmm": lambda a, b: torch.addbmm(a, a[None], b[None]),
    "linear": F.linear,
    "linear with a bias": lambda a, b: F.linear(a, a, b[0]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_several_types(name: str) -> None:
    function = PRODUCTS[name]
    for first, second in ((torch.float16, torch.bfloat16), (torch.float16, torch.float32), (torch.float32, torch.bfloat16)):
        inputs = torch.ones(4, 4, dtype=first), torch.ones(4, 4, dtype=second)
        torch._dynamo.reset()
        with pytest.raises(RuntimeError) as theirs:
            function(*inputs)
        with pytest.raises(RuntimeError) as ours:
            torch.compile(lambda a, b: function(a, b), backend="ktir", dynamic=False)(*inputs)
        assert str(theirs.value).splitlines()[0].split(", but")[0] in str(ours.value)
        shown = " and ".join(f"{str(t.dtype).removeprefix('torch.')} [4, 4]" for t in inputs)
        assert name not in ("@", "linear") or f" of {shown}: " in str(ours.value)


def test_products_of_several_types_under_autocast() -> None:
    a, b = torch.ones(4, 4, dtype=torch.float16), torch.ones(4, 4)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return a @ b

    torch._dynamo.reset()
    assert torch.equal(torch.compile(product, backend="ktir", dynamic=False)(a, b), product(a, b))


def test_assertions_are_kept() -> None:
    torch._dynamo.reset()

    def model(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async.msg((x > 5).all(), "too small")
        return x * 2

    compiled = torch.compile(model, backend="ktir", dynamic=False)
    assert torch.equal(compiled(torch.full((5,), 6.0)), torch.full((5,), 12.0))
    with pytest.raises(RuntimeError, match="too small"):
        compiled(torch.ones(5))


NEGATIVE = torch.complex(torch.ones(70), torch.arange(70.0)).conj().imag


@pytest.mark.parametrize("marked", [NEGATIVE, torch.ops.aten._efficientzerotensor((70,))])
def test_memory_without_the_elements(marked: torch.Tensor) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2 + 1, backend="ktir", dynamic=False)
    plain = marked.clone()
    for x in (marked, plain):
        assert torch.equal(compiled(x), plain * 2 + 1)
    torch._dynamo.reset()
    with pytest.raises(KtirError, match=r"clone\(\)"):
        torch.compile(lambda x: x * 2 + 1, backend="ktir", dynamic=False, options={"fallback": "error"})(marked)


def test_numbers_beyond_the_type(recwarn: pytest.WarningsRecorder) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, n: x * n, backend="ktir")
    for n in (1.5, 2.5, 1e300):
        assert torch.equal(compiled(torch.ones(3), n), torch.ones(3) * n)
    assert not [w for w in recwarn if "overflow" in str(w.message)]
