"""What a kernel computes and nobody reads, and numbers of types that the chip does not have: both are met before anything asks for them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.diagnostics import KtirError

TYPES = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.bool_]


UNREAD: dict[str, Callable[[Any], Any]] = {
    "product": lambda v: v @ v.T,
    "sum of a product": lambda v: lang.dot(v, v.T).sum(-1),
    "extreme": lambda v: np.exp(v).max(0),
    "joined": lambda v: np.concatenate([v, v + 1], 0)[1:2].astype(np.int32),
}


@pytest.mark.parametrize("name", UNREAD)
@pytest.mark.parametrize("shape", [(3, 7), (1, 2), (64, 64), (57, 130)])
def test_what_nobody_reads_is_not_computed(shape: tuple[int, int], name: str) -> None:
    @lang.kernel
    def run(x, y):
        UNREAD[name](x[:])
        y[...] = np.tanh(x[:])

    x = np.ones(shape, np.float16)
    found = [np.zeros_like(x) for _ in "ab"]
    for on, y in zip(("executor", "chip"), found, strict=True):
        run.using(on=on)(x, y)
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("listed", [False, True])
def test_constants_of_all_types(dtype: Any, listed: bool) -> None:
    constant = (np.arange(8) % 2 if listed else np.ones(8)).astype(dtype)

    @lang.kernel
    def run(x, y):
        y[...] = constant

    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    if dtype is np.float64:
        said = rf"{__file__}:\d+:\d+: error: '[\w.]+' op (makes|views) .* f64, which ha(s|ve) no stick layout"
        with pytest.raises(KtirError, match=said):
            run.using(on="chip")(x, y)
    else:
        run.using(on="chip")(x, y)
        assert np.array_equal(y, constant)
