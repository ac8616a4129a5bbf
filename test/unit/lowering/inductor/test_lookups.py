"""Lookups and scatters through several indices, along any dim, on the chip: the values of eager PyTorch, and an error where it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

OPTIONS: dict[str, Any] = {"fallback": "error"}
"""On the chip or not at all."""


def _below(size: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(size))


def _apart(size: int, count: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(size))[:count]


def _whole(*shape: int) -> torch.Tensor:
    """Small integers: all sums of them are exact."""
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(3)).half()


MATRIX, CUBE = _whole(9, 70), _whole(3, 7, 33)

CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "two indices": (lambda x, i, j: x[i, j], (CUBE, _below(3, 5), _below(7, 5) - 7)),
    "two that broadcast": (lambda x, i, j: x[:, i, j], (CUBE, _below(7, 4, 1), _below(33, 5))),
    "three": (lambda x, i, j, k: x[i, j, k], (CUBE, _below(3, 5), _below(7, 5), _below(33, 5))),
    "apart": (lambda x, i, j: x[i, :, j], (CUBE, _below(3, 5), _below(33, 5))),
    "one per row": (lambda x, i: x[torch.arange(3), i], (CUBE, _below(7, 3))),
    "triangle": (lambda x: x[:, *torch.tril_indices(7, 33, -1).unbind()], (CUBE,)),
    "gather of rows": (lambda x, i: x.gather(0, i), (MATRIX, _below(9, 5, 66))),
    "along the middle": (lambda x, i: torch.take_along_dim(x, i, 1), (CUBE, _below(7, 3, 2, 33))),
    "scatter to rows": (lambda x, i, v: x.scatter(0, i, v), (MATRIX, torch.stack([_apart(9, 5)] * 70, 1), _whole(5, 70))),
    "put": (lambda x, i, j, v: x.index_put((i, j), v), (CUBE, _below(3, 5), _apart(7, 5), _whole(5, 33))),
    "sums at rows": (lambda x, i, v: x.scatter_add(0, i[:, None].expand(-1, 70), v), (MATRIX, _below(9, 20), _whole(20, 70))),
    "sums in rows": (lambda x, i, v: x.scatter_add(1, i, v), (MATRIX, _below(70, 9, 20), _whole(9, 20))),
    "sums of slices": (lambda x, i, v: x.index_add(1, i, v, alpha=2), (CUBE, _below(7, 11), _whole(3, 11, 33))),
    "sums at two indices": (
        lambda x, i, j, v: x.index_put((i, j), v, accumulate=True),
        (CUBE, _below(3, 20), _below(7, 20), _whole(20, 33)),
    ),
    "rolled, beside what is rolled": (lambda x: (lambda a: torch.cat((a.roll(1, 0), a), 0))(x.amax(-1, keepdim=True)), (MATRIX,)),
    "rolled numbers beside them": (lambda x: (lambda a: torch.cat((a.roll(1, 0), a), 0))(x.argmin(-1, keepdim=True)), (MATRIX,)),
    "rolled among others": (lambda x: (lambda a: torch.stack((a.roll(1, 0), a, a.roll(2, 0)), 1))(x.amax(-1, keepdim=True)), (MATRIX,)),
}


@pytest.mark.parametrize("part", range(2))
def test_values(part: int) -> None:
    """Side by side in one graph, each of operands of its own."""
    cases = dict(list(CASES.items())[part::2])

    def model(given: list[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        return [function(*inputs) for (function, _), inputs in zip(cases.values(), given, strict=True)]

    given = [tuple(x.clone() for x in inputs) for _, inputs in cases.values()]
    torch._dynamo.reset()
    actual = torch.compile(model, backend="ktir", dynamic=False, options=OPTIONS)(given)
    for name, found, expected in zip(cases, actual, model(given), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, msg=lambda text, name=name: f"{name}: {text}")
        assert found.stride() == expected.stride(), name


@pytest.mark.parametrize(
    ("function", "indices"),
    [
        (lambda x, i, j: x[i, j], (torch.tensor([0, 0]), torch.tensor([1, 7]))),  # the place of x[1, 0]
        (lambda x, i, j: x.index_put((i, j), x[0, 0]), (torch.tensor([0, -4]), torch.tensor([1, 6]))),
        (lambda x, i, j: x.index_add(1, i, x[:, j]), (torch.tensor([0, 7]), torch.tensor([1, 6]))),
        (lambda x, i, j: x.scatter_reduce(0, i, x[j], "amax"), (torch.full((2, 7, 33), 3), torch.tensor([1, 2]))),
        (lambda x, i, j: x.index_select(0, i), (torch.tensor([0, -1]), torch.tensor([1, 6]))),
        (lambda x, i, j: x.index_add(1, i, x[:, j]), (torch.tensor([0, -7]), torch.tensor([1, 6]))),
        (lambda x, i, j: x.index_copy(2, i, x[..., j]), (torch.tensor([0, -1]), torch.tensor([1, 6]))),
        (lambda x, i, j: x.clone().index_add_(-1, i, x[..., j], alpha=2), (torch.tensor([0, -1]), torch.tensor([1, 6]))),
    ],
)
def test_out_of_range(function: Callable[..., torch.Tensor], indices: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The error is PyTorch's."""
    torch._dynamo.reset()
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(CUBE, *indices)
    with pytest.raises(expected.type, match=r"test_lookups.py:\d+:1: error: .*(out of|bounds)"):
        torch.compile(function, backend="ktir", dynamic=False, options=OPTIONS)(CUBE, *indices)


def test_sums_of_bfloat16_are_of_numbers() -> None:
    """Sums of small whole numbers, which are exact."""
    x, i, v = MATRIX.bfloat16(), _below(9, 20), _whole(20, 70).bfloat16()
    torch._dynamo.reset()
    actual = torch.compile(lambda x, i, v: x.index_put((i,), v, accumulate=True), backend="ktir", dynamic=False)(x, i, v)
    assert torch.equal(actual, x.index_put((i,), v, accumulate=True))


def test_what_is_looked_up_and_then_changed_in_place_is_changed(on_chip: None) -> None:
    """The lookup sees the input in another form than the rest, of which nothing comes back."""

    def step(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        more, cosine = x + 1, torch.cos(x)
        x.copy_(y)
        return more, torch.softmax(torch.index_select(cosine, -1, i), -1)

    x, y, i = torch.randn(128).half(), torch.tensor(2.0).half(), _below(128, 255)
    torch._dynamo.reset()
    torch.compile(step, backend="spyre", dynamic=False)(x, y, i)
    assert torch.equal(x, torch.full((128,), 2.0).half())


@pytest.mark.parametrize("shape", [(7, 2), (9, 130)], ids=str)
@pytest.mark.parametrize(
    "function", [lambda x, i: torch.index_copy(y := x * 2, 0, i, y), lambda x, i: x.index_put_((i,), x.clone())], ids=["copy", "in place"]
)
def test_what_is_stored_through_indices_may_come_from_where_it_goes(
    function: Callable[..., torch.Tensor], shape: tuple[int, int], on_chip: None
) -> None:
    torch._dynamo.reset()
    x, indices = torch.randn(shape).half(), _apart(shape[0], shape[0])
    expected = function(x.clone(), indices)
    assert torch.equal(torch.compile(function, backend="spyre", dynamic=False)(x.clone(), indices), expected)


def test_one_number_is_stored_through_indices_twice(on_chip: None) -> None:
    def step(x: torch.Tensor) -> None:
        last = 4 - torch.arange(5)
        x.clamp_(max=7)
        x[last] = torch.full_like(x, 3)
        x[last] = torch.zeros_like(x)

    x = torch.ones(5, 70, dtype=torch.int32)
    torch._dynamo.reset()
    torch.compile(step, backend="spyre", dynamic=False)(x)
    assert not x.any()
