"""Generated networks through the whole chain: torch.compile on the instruction emulator against eager PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch

import ktir.lowering.inductor  # noqa: F401  registers the backend

from .networks import Network

SHORT, LONG = 20, 300


def check(seed: int) -> None:
    """Compile, run and compare one network; raises AssertionError with its description."""
    torch._dynamo.reset()
    model = Network(seed).eval()
    x = model.example()
    half = copy.deepcopy(model).half()
    with torch.no_grad():
        exact = model(x)
        eager = half(x.half()).float()
        got = torch.compile(half, backend="spyre", dynamic=False)(x.half()).float()
    what = f"seed {seed}, {model.describe()}"
    assert got.shape == exact.shape, what
    assert torch.isfinite(got).all() or not torch.isfinite(eager).all(), what
    error, own = (got - exact).abs().max().item(), (eager - exact).abs().max().item()
    # an f16 result can always be off by half a unit in its last place, however lucky eager was
    floor = exact.abs().max().item() * 2.0**-11
    assert error <= max(1.5 * own, floor), f"{what}: error {error:.3g}, eager float16 {own:.3g}, floor {floor:.3g}"
    if exact.shape[-1] > 1:
        best = exact.topk(2, -1).values
        clear = (best[..., 0] - best[..., 1]) > max(1.5 * own, floor)
        assert (got.argmax(-1) == exact.argmax(-1))[clear].all(), what


@pytest.mark.parametrize("seed", range(SHORT))
def test_network(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_more_networks(seed: int) -> None:
    check(seed)
