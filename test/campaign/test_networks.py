"""Generated networks through the whole chain: torch.compile on the instruction emulator against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from campaign.networks import Network
from chip import only_on_chip

import ktir.lowering.inductor  # noqa: F401  registers the backend

SHORT, LONG, INPUTS = 12, 300, 8


def check(seed: int) -> None:
    """Compile, run on several inputs and compare one network; raises AssertionError with its description.

    The error against float32 eager may be 1.5 times what eager float16 makes of the same inputs. Several inputs, because a network with a
    handful of results can be lucky once; and half a unit in the last place of the largest result is always allowed.
    """
    torch._dynamo.reset()
    model = Network(seed).eval()
    half = Network(seed).eval().half()
    compiled = torch.compile(half, backend="spyre", dynamic=False)
    inputs = [model.example() for _ in range(INPUTS)]
    with torch.no_grad(), only_on_chip():
        exact = torch.stack([model(x) for x in inputs])
        eager = torch.stack([half(x.half()).float() for x in inputs])
        got = torch.stack([compiled(x.half()).float() for x in inputs])
    what = f"seed {seed}, {model.describe()}"
    assert got.shape == exact.shape, what
    assert torch.isfinite(got).all() or not torch.isfinite(eager).all(), what
    error, own = (got - exact).abs().max().item(), (eager - exact).abs().max().item()
    bound = max(1.5 * own, exact.abs().max().item() * 2.0**-11)
    assert error <= bound, f"{what}: error {error:.3g}, eager float16 {own:.3g}, bound {bound:.3g}"
    if exact.shape[-1] > 1:
        best = exact.topk(2, -1).values
        clear = (best[..., 0] - best[..., 1]) > bound
        assert (got.argmax(-1) == exact.argmax(-1))[clear].all(), what


@pytest.mark.parametrize("seed", range(SHORT))
def test_network(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_more_networks(seed: int) -> None:
    check(seed)
