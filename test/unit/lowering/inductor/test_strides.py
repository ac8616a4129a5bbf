"""Results have the strides of eager PyTorch: views behind the graph, and in it, rely on them."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F

X = torch.linspace(-1, 1, 2 * 6 * 9 * 9).reshape(2, 6, 9, 9)
W = torch.linspace(-1, 1, 4 * 6 * 3 * 3).reshape(4, 6, 3, 3)
T = torch.linspace(-1, 1, 6 * 4 * 3 * 3).reshape(6, 4, 3, 3)

OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "twice itself": lambda x: torch.cat([x, x], 1),
    "stacked": lambda x: torch.stack([x, x], 1),
    "placed slices": lambda x: x.index_copy(2, torch.tensor([1]), x[:, :, :1]),
    "normalized": lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6)),
    "log of a sigmoid": F.logsigmoid,
    "exchanged channels": lambda x: F.channel_shuffle(x, 2),
    "whole quotients": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "step": lambda x: torch.heaviside(x, x[0]),
    "log of a sum": lambda x: torch.logaddexp(x, x[0]),
    "reflected": lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
}

CASES: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "convolution": (lambda x: F.conv2d(x, W, padding=1), X),
    "channels last": (lambda x: F.conv2d(x, W), X.contiguous(memory_format=torch.channels_last)),
    "transposed": (lambda x: F.conv_transpose2d(x, T, stride=2), X),
    "one dim": (lambda x: F.conv1d(x, W[:, :, 0]), X[:, :, 0]),
    "top-k": (lambda x: torch.topk(x, 3, 1), X),
    "view in the graph": (lambda x: F.conv2d(x, W).view(-1), X),
    "aliases": (lambda x: (x, x.view(-1), x[0], x * 2), X),
}


@pytest.mark.parametrize("name", CASES)
def test_strides(name: str) -> None:
    function, x = CASES[name]
    torch._dynamo.reset()
    with torch.no_grad():
        expected = function(x)
        found = torch.compile(function, backend="spyre", dynamic=False, options={"engine": "ktir", "fallback": "error"})(x)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
        assert a.stride() == b.stride()
        assert (a.data_ptr() == x.data_ptr()) == (b.data_ptr() == x.data_ptr())


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 0, 2, 1), (2, 1, 0, 3)], ids=str)
def test_strides_of_what_lies_otherwise(order: tuple[int, ...]) -> None:
    back = tuple(order.index(d) for d in range(4))
    x = X.permute(order).contiguous().permute(back)
    torch._dynamo.reset()

    def all_of_them(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(x) for f in OPERATORS.values())

    with torch.no_grad():
        found = torch.compile(all_of_them, backend="spyre", options={"fallback": "error"})(x)
    for name, a, b in zip(OPERATORS, found, all_of_them(x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4, msg=name)
        assert a.stride() == b.stride(), name


def test_a_dropout_that_drops_nothing_is_its_operand() -> None:
    """What is written to its result is written to the operand, which torch's own tracing loses."""

    def write(x: torch.Tensor, p: float, training: bool) -> tuple[torch.Tensor, torch.Tensor]:
        dropped = F.dropout(x, p, training)
        dropped[1:] += 1
        return dropped, x * 2

    for p, training in ((0.5, False), (0.0, True)):
        torch._dynamo.reset()
        given, expected = torch.zeros(4), torch.zeros(4)
        dropped, doubled = torch.compile(write, backend="spyre")(given, p, training)
        assert dropped.data_ptr() == given.data_ptr()
        for a, b in zip((dropped, doubled, given), (*write(expected, p, training), expected), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_windows_of_one_column() -> None:
    """The mask of the padding is of two variables, of which the access depends on neither."""

    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x.expand(2, 8, 12, 12), w, stride=2, padding=2, groups=2)

    x, w = torch.arange(192.0).remainder(7).reshape(2, 8, 12, 1).half(), torch.arange(128.0).remainder(5).reshape(4, 4, 4, 2).half()
    torch._dynamo.reset()
    with torch.no_grad():
        assert torch.equal(torch.compile(convolve, backend="spyre", options={"fallback": "error"})(x, w), convolve(x, w))


def test_a_window_of_one_place_of_several() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = F.pad(x, (3, 3, 3, 1), value=-2)
        added = padded.clone()
        added[0:1, :, :4:3, -9::2] += y
        return torch.neg(padded), added

    x, y = torch.arange(384.0).remainder(7).reshape(2, 8, 2, 12).bfloat16(), torch.arange(5.0).bfloat16()
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(add, backend="spyre", options={"engine": "ktir", "fallback": "error"})(x, y)
    assert all(map(torch.equal, found, add(x, y)))


@pytest.mark.parametrize("columns", [3, 10])
def test_what_lies_between_the_elements_of_an_input(columns: int) -> None:
    """A graph that takes an input by other strides reads there: what others write there is seen at each call, however sparse it is."""
    base = torch.zeros(40, columns)
    compiled = torch.compile(lambda x: x.as_strided((2, 9), (7, 1)) * 2, backend="spyre", options={"fallback": "error"})
    for k in range(4):
        base[:, 1:] = k
        assert torch.equal(compiled(base[:, :1]), 2 * base.reshape(-1).as_strided((2, 9), (7, 1)))


def test_integers_between_the_elements_of_an_input() -> None:
    """Those count for the range of a program, too."""
    base = torch.zeros(40, 10, dtype=torch.int64)
    compiled = torch.compile(lambda x: x.as_strided((2, 9), (7, 1)).flip(0), backend="spyre")
    for k in (1, 2**40):
        base[:, 1:] = k
        assert torch.equal(compiled(base[:, :1]), base.reshape(-1).as_strided((2, 9), (7, 1)).flip(0))


@pytest.mark.parametrize("size", [[2] * 17, [1] * 63 + [3]])
def test_dims_beyond_those_of_loops(size: list[int], on_chip: None) -> None:
    x = torch.arange(float(prod(size))).reshape(size)
    assert torch.equal(torch.compile(lambda x: x * 2, backend="spyre", dynamic=False)(x), x * 2)


def test_more_dims_than_programs_have(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.arange(3.0).reshape([1] * 64 + [3])
    got = torch.compile(lambda x: x * 2, backend="spyre", dynamic=False)(x)
    assert got.flatten().tolist() == [0, 2, 4]
    assert "a tensor of 65 dims is not supported: a program's have at most 64" in caplog.text
