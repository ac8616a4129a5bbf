"""What the device computes in the place of PyTorch's operators for whole modules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from ktir.device.operators.fallback import FallbackWarning

NORMED = [((5, 3), 0), ((4, 3, 2), 2)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("shape", "dim"), NORMED)
def test_weight_norms_are_trained(dtype: torch.dtype, shape: tuple[int, ...], dim: int, on_chip: None) -> None:
    train_weight_norm(dtype, shape, dim)


@pytest.fixture
def on_host() -> Iterator[None]:
    """Each operator warns that the chip has no float64."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield


@pytest.mark.parametrize(("shape", "dim"), NORMED)
def test_weight_norms_of_float64_are_trained_in_it(shape: tuple[int, ...], dim: int, on_host: None) -> None:
    train_weight_norm(torch.float64, shape, dim)


def train_weight_norm(dtype: torch.dtype, shape: tuple[int, ...], dim: int) -> None:
    """Against float64 on the host. Lengths are rounded to the type, and count up to three times in a gradient."""
    torch.manual_seed(0)
    sizes = [n if d == dim else 1 for d, n in enumerate(shape)]
    v, g = torch.randn(shape).to(dtype), torch.rand(sizes).to(dtype) + 1
    weights = torch.randn(shape).to(dtype)
    found = []
    for device, kind in (("cpu", torch.float64), ("spyre", dtype)):
        given = [t.detach().to(kind).to(device).clone().requires_grad_() for t in (v, g)]
        (torch.ops.aten._weight_norm.default(*given, dim) * weights.to(kind).to(device)).sum().backward()
        found.append([t.grad for t in given])
    error = 8 * torch.finfo(dtype).eps
    for wanted, got in zip(*found, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=error, atol=error * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("classes", "number"), [([0, 5], 3), ([-1, 2], -1), ([-1, 2], 4), ([0, 2], 0), ([], -1), ([], 3), ([0, 2], -1), ([3, 1], 4)]
)
def test_one_hot_as_on_the_host(classes: list[int], number: int) -> None:
    found: list[object] = []
    for device in ("cpu", "spyre"):
        try:
            found.append(torch.nn.functional.one_hot(torch.tensor(classes, dtype=torch.int64, device=device), number).tolist())
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_gradients_of_fused_attention_in_float64(on_host: None) -> None:
    """Those that autograd of the host finds of the same attention."""
    torch.manual_seed(0)
    q, k, v = given = [torch.randn(1, 2, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    along = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    torch.nn.functional.scaled_dot_product_attention(q, k, v).backward(along)
    there = [t.detach().to("spyre") for t in given]
    result, sums, *seeds = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default(*there)
    wanted = [True, True, True, False]
    found = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default(
        along.to("spyre"), *there, None, wanted, result, sums, *seeds[:4], 0.0, False, *seeds[4:6]
    )
    for ours, t in zip(found, given, strict=False):
        torch.testing.assert_close(ours.cpu(), t.grad, rtol=1e-13, atol=1e-13)
