"""Each supported op over generated shapes through the whole chain: torch.compile on the instruction emulator against float32 eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from chip import only_on_chip
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import ktir.lowering.inductor  # noqa: F401  registers the backend

EXTENTS = st.one_of(st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129]), st.integers(1, 200))
SHAPES = st.one_of(
    st.tuples(EXTENTS),
    st.tuples(EXTENTS, EXTENTS),
    st.tuples(st.integers(1, 7), st.integers(1, 40), EXTENTS),
)
Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
OPS: dict[str, Op] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "relu": lambda x, _: F.relu(x),
    "gelu": lambda x, _: F.gelu(x),
    "silu": lambda x, _: F.silu(x),
    "exp": lambda x, _: torch.exp(x),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]) + y,
    "rms_norm": lambda x, _: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "softmax": lambda x, _: torch.softmax(x, -1),
    "row": lambda x, y: x + y.reshape(-1)[: x.shape[-1]],
    "column": lambda x, y: x * y.amax(-1, keepdim=True),
    "transposed": lambda x, y: x.reshape(-1, x.shape[-1]).t() * 2 + y.reshape(-1, y.shape[-1]).t(),
    "reshaped": lambda x, _: torch.exp(x.flatten()),
    "linear": lambda x, y: F.linear(x, y.reshape(-1, y.shape[-1]), y.reshape(-1, y.shape[-1])[:, 0]),
    "matmul": lambda x, y: x.reshape(-1, x.shape[-1]) @ y.reshape(-1, y.shape[-1]).t(),
}


def check(op: Op, shape: tuple[int, ...], seed: int) -> None:
    """The error may be 1.5 times that of float16 eager, or half a unit in the last place of the largest result."""
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(shape, generator=generator).half() for _ in range(2))
    with torch.no_grad(), only_on_chip():
        exact, eager = op(x.float(), y.float()), op(x, y).float()
        got = torch.compile(op, backend="spyre", dynamic=False)(x, y).float()
    assert got.shape == exact.shape
    assert torch.isfinite(got).all()
    own = (eager - exact).abs().max().item()
    assert (got - exact).abs().max().item() <= max(1.5 * own, exact.abs().max().item() * 2.0**-11)


@pytest.mark.parametrize("name", OPS)
@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=4, deadline=None, derandomize=True, database=None)
def test_op(name: str, shape: tuple[int, ...], seed: int) -> None:
    check(OPS[name], shape, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", OPS)
@given(shape=SHAPES, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None, print_blob=True, database=None)
def test_op_long(name: str, shape: tuple[int, ...], seed: int) -> None:
    check(OPS[name], shape, seed)
