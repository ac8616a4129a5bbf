"""The price of a kernel knows what its tensors take of the scratchpad beside its longest matmul."""

from __future__ import annotations

import torch
from chip_cycles import cycles_of
from torch.nn import functional as F

Pair = tuple[torch.Tensor, torch.Tensor]


def down(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return x @ w + r


def projected(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(h.float(), h.shape[-1:]).half() @ w


def both(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor, v: torch.Tensor) -> Pair:
    """The end of a layer of a large model, and the begin of the next one."""
    h = down(x, w, r)
    return h, projected(h, v)


def test_no_more_is_joined_than_fits() -> None:
    """32 rows of a core fit beside the weights of the longest matmul; with what norm and next product need it took several passes over all
    weights, each in fewer rows, 2.3 times as long as two programs."""
    size, inner = 4096, 14336
    apart = cycles_of(down, (1024, inner), (inner, size), (1024, size)) + cycles_of(projected, (1024, size), (size, size))
    assert cycles_of(both, (1024, inner), (inner, size), (1024, size), (size, size)) < 1.02 * apart
