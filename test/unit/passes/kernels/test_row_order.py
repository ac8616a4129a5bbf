"""Second operands of matmuls whose rows lie anywhere among their dims, such as positions before heads, are those of PyTorch on the chip."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.checking.levels import check_levels

pytestmark = pytest.mark.usefixtures("on_chip")
Tensors = tuple[torch.Tensor, ...]


def whole(*shape: int) -> torch.Tensor:
    """Small whole numbers, whose sums of products are exact in any order."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).float()


FORMS: dict[str, tuple[Callable[..., torch.Tensor], Tensors]] = {
    "computed keys": (lambda k, q: q @ (k * 2).transpose(0, 1).transpose(1, 2), (whole(48, 2, 64), whole(2, 4, 64))),
    "computed values": (lambda v, p: p @ (v * 2).transpose(0, 1), (whole(48, 2, 64), whole(2, 4, 48))),
    "lanes that hang over": (lambda k, q: q @ (k + 1).transpose(0, 1).transpose(1, 2), (whole(70, 3, 33), whole(3, 5, 33))),
    "columns that hang over": (lambda v, p: p @ (v + 1).transpose(0, 1), (whole(70, 3, 130), whole(3, 5, 70))),
    "two batches behind": (lambda k, q: torch.einsum("abqd,kabd->abqk", q, k + 1), (whole(40, 2, 3, 64), whole(2, 3, 4, 64))),
    "one batch before, one behind": (lambda k, q: torch.einsum("abqd,akbd->abqk", q, k + 1), (whole(2, 40, 3, 64), whole(2, 3, 4, 64))),
    "batches in the other order": (lambda k, q: torch.einsum("abqd,kbad->abqk", q, k + 1), (whole(40, 3, 2, 64), whole(2, 3, 4, 64))),
}


@pytest.mark.parametrize("name", FORMS)
def test_of_what_is_computed(name: str) -> None:
    f, given = FORMS[name]
    halves = [x.half() for x in given]
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*halves)
        want = f(*(x.double() for x in halves))
    assert torch.equal(got.double(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [7, 64, 100])
def test_of_what_is_gathered(dtype: torch.dtype, rows: int) -> None:
    """Positions of a pool of keys and values, as slots of a cache are."""

    def f(pool: torch.Tensor, at: torch.Tensor, q: torch.Tensor, p: torch.Tensor) -> Tensors:
        found = pool[at].to(q.dtype)
        return q @ found.transpose(0, 1).transpose(1, 2), p @ found.transpose(0, 1)

    wide = torch.bfloat16 if dtype == torch.bfloat16 else torch.float16
    at = torch.randint(128, (rows,), generator=torch.Generator().manual_seed(rows))
    given = whole(128, 2, 64).to(dtype), at, whole(2, 4, 64).to(wide), whole(2, 4, rows).to(wide)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*given)
    pool, at, q, p = (x.double() if x.is_floating_point() else x for x in (given[0].to(wide), *given[1:]))
    for got, want in zip(found, f(pool, at, q, p), strict=True):
        assert torch.equal(got, want.to(wide))


def test_every_level_has_the_same_bits() -> None:
    f, given = FORMS["lanes that hang over"]
    k, q = (x.half() for x in given)
    with torch.no_grad():
        text, want = str(ktir.capture(f, k, q)), f(k, q)
    *_, tape, step = check_levels(text, [k.numpy(), q.numpy(), np.zeros(want.shape, np.float16)], cores=4)
    assert torch.equal(torch.from_numpy(tape.arrays[2]), want)
    assert (tape.arrays[2] == step.arrays[2]).all()
