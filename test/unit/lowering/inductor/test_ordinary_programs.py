"""Ordinary programs of PyTorch, as one writes them, run on the emulated chip as a whole, with PyTorch's values in a wider type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from combinations import each_once
from torch.nn import functional as F

from ktir import config
from ktir.lowering.inductor.backend import spyre

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
ROUNDINGS = {torch.float16: 2.0**-10, torch.float32: 2.0**-20}
"""What a value may be off by, relative to the largest of the tensor: roundings of one operator's operands and of its result."""


def drawn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def below(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(limit, shape, generator=torch.Generator().manual_seed(limit))


def on_chip(f: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """What `f` gives, compiled; an error if anything of it would run elsewhere."""
    torch._dynamo.reset()
    with config.patch(fallback="error", engine="spyre"), torch.no_grad():
        return torch.compile(f, backend=spyre, fullgraph=True, dynamic=False)(*(x.clone() for x in inputs))


def holds(f: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """That `f` runs on the chip and gives what it gives in float64, or exactly what PyTorch gives where that is no float."""
    same = f(*(x.clone() for x in inputs))
    wide = f(*(x.double() if x.is_floating_point() else x for x in inputs))
    found = on_chip(f, *inputs)
    for a, b, c in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, same, wide)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype in ROUNDINGS:
            torch.testing.assert_close(a.double(), c.double(), rtol=0, atol=ROUNDINGS[a.dtype] * float(c.abs().max()))
        else:
            assert torch.equal(a, b)


def of(x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """A constant in the type of `x`."""
    return made.to(x.dtype)


CONSTANTS: dict[str, Program] = {
    "sum over repeats": (lambda x: x.unsqueeze(0).expand(3, -1, -1).sum(0), (drawn(5, 9),)),
    "softmax over repeats": (lambda x: x.repeat(3, 1, 1).softmax(0), (drawn(5, 9),)),
    "maximum over repeats": (lambda x: x.unsqueeze(1).expand(-1, 70, -1).amax(1), (drawn(5, 9),)),
    "sum of a range": (lambda x: x + torch.arange(9).sum(), (drawn(5, 9),)),
    "sum of ones": (lambda x: torch.ones(5, 9).sum(-1, keepdim=True) + x, (drawn(5, 9, dtype=torch.float32),)),
    "lengths of a mask": (lambda n: (torch.arange(16) < n[:, None]).sum(1), (below(16, 5),)),
    "argmax of zeros": (lambda x: torch.zeros_like(x).argmax(-1), (drawn(5, 9),)),
    "matmul with ones": (lambda x: x @ of(x, torch.ones(17, 3)), (drawn(9, 17),)),
    "matmul of ones": (lambda x: of(x, torch.full((3, 70), 0.5)) @ x, (drawn(70, 9),)),
}


def _after_its_norm(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = 0.1 / x
    return torch.cat((torch.linalg.vector_norm(y, dim=(0,), keepdim=True), y, y), -1), F.linear(v, w, y)


MEMORY: dict[str, Program] = {
    "parts of a row from two cores": (lambda x: (torch.cat([x, x * 2], 1), (x * 2).ceil()), (drawn(3, 127),)),
    "parts of a row from two kernels": (_after_its_norm, (drawn(191).abs() + 1, drawn(191, 1) / 16, drawn(1, 1))),
    "depthwise convolution": (lambda x, w: F.conv1d(x, w, padding=3, groups=33), (drawn(1, 33, 63), drawn(33, 1, 4))),
    "patches of a part of a concatenation": (
        lambda x, w, v: torch.cat([x, y := F.conv2d(x, w, padding=1).relu(), F.conv2d(y, v, padding=1)], 1),
        (drawn(1, 3, 6, 5), drawn(2, 3, 3, 3) / 4, drawn(1, 2, 3, 3) / 4),
    ),
    "group norm, transposed convolution": (
        lambda x, w: F.conv_transpose2d(F.group_norm(x, 4), w, stride=2) / 8,
        (drawn(1, 8, 7, 7), drawn(8, 4, 2, 2)),
    ),
    "nearest upsampling": (lambda x: F.interpolate(x, size=(13, 20), mode="nearest"), (drawn(2, 3, 7, 9),)),
}

LOOPS: dict[str, Program] = {
    "long sum": (lambda x: x.cumsum(1), (drawn(3, 1024, dtype=torch.float32),)),
    "long sum of integers": (lambda x: x.cumsum(0, dtype=torch.int32), (below(9, 131, 2).int(),)),
    "product": (lambda x: x.prod(1), (drawn(5, 70, 3) / 10 + 1,)),
    "product of all": (lambda x: x.prod(), (drawn(2, 3, dtype=torch.float32),)),
}


def _written(cache: torch.Tensor, index: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    return cache.index_copy_(0, index, new) * 2


def _paged(keys: torch.Tensor, pages: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    chosen = keys.index_select(0, pages)
    return chosen.view(-1, *keys.shape[2:]).transpose(0, 1) @ query.permute(1, 2, 0)


INDICES: dict[str, Program] = {
    "cache written by slots": (_written, (drawn(16, 2, 65), torch.tensor([3, 7, 1]), drawn(3, 2, 65))),
    "cache read by pages": (_paged, (drawn(12, 4, 2, 33), torch.tensor([3, 7, 1]), drawn(1, 2, 33))),
    "gather along dim 0": (lambda x, i: x.gather(0, i), (drawn(9, 17), below(9, 4, 17))),
    "scatter along dim 0": (lambda x, i, v: x.scatter(0, i, v), (drawn(9, 17), torch.tensor([[3] * 17, [0] * 17]), drawn(2, 17))),
    "two indices": (lambda x, i, j: x[i, :, j], (drawn(9, 5, 17), below(9, 7), below(17, 7))),
    "index_add": (lambda x, i, v: x.index_add(0, i, v), (drawn(9, 17), torch.tensor([1, 1, 3]), drawn(3, 17))),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x[2:6]), (drawn(9, 17, dtype=torch.float32), below(9, 4, 17))),
    "counts": (lambda n, i: n.index_put((i,), torch.ones(40, dtype=torch.int32), accumulate=True), (below(5, 9).int(), below(9, 40))),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_made_in_the_program(name: str) -> None:
    f, inputs = CONSTANTS[name]
    holds(f, *inputs)


@pytest.mark.parametrize("name", MEMORY)
def test_parts_of_memory(name: str) -> None:
    f, inputs = MEMORY[name]
    holds(f, *inputs)


@pytest.mark.parametrize("name", LOOPS)
def test_scans_and_products(name: str) -> None:
    f, inputs = LOOPS[name]
    holds(f, *inputs)


@pytest.mark.parametrize("name", INDICES)
def test_natural_shapes_through_indices(name: str) -> None:
    f, inputs = INDICES[name]
    holds(f, *inputs)


@pytest.mark.parametrize("f", [lambda x, i: x.gather(0, i), lambda x, i: x.scatter_add(0, i, x[:2])])
def test_an_index_that_is_not_there_is_an_error_though_its_place_would_be(f: Callable[..., Any]) -> None:
    index = below(9, 2, 17)
    index[1, 3] = 9
    with pytest.raises(RuntimeError, match="index 9 is out of bounds for dimension 0 with size 9"):
        on_chip(f, drawn(9, 17), index)


WINDOWS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "of two sides": (lambda x: F.fold(x, (6, 7), (2, 3), stride=(2, 1), padding=(0, 1)), (2, 18, 21)),
    "with gaps": (lambda x: F.fold(x, (8, 8), 3, dilation=2, padding=1), (27, 36)),
    "side by side": (lambda x: F.fold(x, (8, 8), 4, stride=4), (2, 48, 4)),
}


@pytest.mark.parametrize(("name", "dtype"), each_once(WINDOWS, ROUNDINGS), ids=str)
def test_windows_that_overlap_are_summed(name: str, dtype: torch.dtype) -> None:
    fold, shape = WINDOWS[name]
    holds(fold, drawn(*shape, dtype=dtype))
