"""Results have the strides of eager PyTorch: views behind the graph, and in it, rely on them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

X = torch.linspace(-1, 1, 2 * 6 * 9 * 9).reshape(2, 6, 9, 9)
W = torch.linspace(-1, 1, 4 * 6 * 3 * 3).reshape(4, 6, 3, 3)
T = torch.linspace(-1, 1, 6 * 4 * 3 * 3).reshape(6, 4, 3, 3)

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
