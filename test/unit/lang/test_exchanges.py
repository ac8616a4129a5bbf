"""Exchanges of the kernel language give PyTorch's values in float64, and those that some tiles do not reach are found."""

from typing import Any

import numpy as np
import pytest
import torch
from near import close, wide

from ktir import lang
from ktir.diagnostics import KtirError

PLACES = ["numpy", "executor"]
rng = np.random.default_rng(17)


@lang.kernel
def exchanges(x, y):
    t, n = lang.tile_id(), lang.tiles()
    v = x[t]
    y[t, 0], y[t, 1] = lang.all_reduce(v), lang.all_reduce(v, np.maximum, axis=1)
    y[t, 2], y[t, 3] = lang.broadcast(v, 2), lang.shift(v, 1, axis=1)
    y[t, 4 : 4 + n] = lang.all_gather(v[None])
    y[t, 4 + n] = lang.all_to_all(v, split=0, concat=0)
    y[t, 5 + n, : 24 // n] = lang.reduce_scatter(v)


@pytest.mark.parametrize("on", PLACES)
def test_exchanges(on: Any) -> None:
    x = rng.standard_normal((6, 24)).astype(np.float32)
    y = np.zeros((6, 12, 24), np.float32)
    exchanges[2, 3].using(on=on)(x, y)
    w = wide(x)
    close(y[:, 0], w.sum(0).expand(6, -1), 2**-21)
    rows = w.reshape(2, 3, 24)
    close(y[:, 1], rows.amax(1, keepdim=True).expand(2, 3, 24).reshape(6, 24), 0)
    close(y[:, 2], w[2].expand(6, -1), 0)
    close(y[:, 3], rows.roll(1, 1).reshape(6, 24), 0)
    close(y[:, 4:10], w.expand(6, 6, 24), 0)
    close(y[:, 10], w.reshape(6, 6, 4).transpose(0, 1).reshape(6, 24), 0)
    close(y[:, 11, :4], w.sum(0).reshape(6, 4), 2**-21)


@lang.kernel
def half_there(x, y):
    @lang.when(lang.tile_id() == 0)
    def _():
        y[...] = lang.all_reduce(x[...])


@lang.kernel
def not_as_often(x, y):
    for _ in lang.range(lang.tile_id()):
        y[...] = lang.all_reduce(x[...])


@lang.kernel
def in_some_groups(x, y):
    acc = lang.zeros(x.shape[-1])
    acc[...] = x[lang.tile_id()]
    for i in lang.range(3):

        @lang.when(i + lang.tile_id(0) != 1)
        def _():
            acc[...] = lang.all_reduce(acc, axis=1) + lang.shift(x[lang.tile_id()], axis=1)

    y[lang.tile_id()] = acc


@pytest.mark.parametrize("on", [*PLACES, "chip"])
def test_exchanges_in_branches_that_whole_groups_take(on: Any) -> None:
    """By the number of the group, and by the trip."""
    x = rng.standard_normal((6, 70)).astype(np.float32)
    in_some_groups.using(grid=(2, 3), on=on)(x, y := np.zeros_like(x))
    for group in range(2):
        own = wide(x[3 * group : 3 * group + 3])
        acc = own
        for i in range(3):
            if i + group != 1:
                acc = acc.sum(0) + torch.roll(own, 1, 0)
        close(y[3 * group : 3 * group + 3], acc, 2**-20)


@pytest.mark.parametrize("kernel", [half_there, not_as_often])
@pytest.mark.parametrize("on", PLACES)
def test_exchanges_that_some_tiles_do_not_reach_wait_for_ever(kernel: Any, on: Any) -> None:
    with pytest.raises(KtirError, match=r"waits (for tiles that have ended without it|on tile . for tile .)"):
        kernel[2].using(on=on)(np.ones((2, 64), np.float32), np.zeros((2, 64), np.float32))


def test_tiles_that_wait_for_each_other_in_different_exchanges() -> None:
    @lang.kernel
    def crossed(x, y):
        one, other = (0, 1) if int(lang.tile_id()) in (0, 3) else (1, 0)
        y[lang.tile_id()] = lang.all_reduce(lang.all_reduce(x[lang.tile_id()], axis=one), axis=other)

    with pytest.raises(lang.Mistake, match="or wait in another one"):
        crossed.using(grid=(2, 2), on="numpy")(np.ones((4, 64), np.float32), np.zeros((4, 64), np.float32))


@pytest.mark.parametrize("kernel", [half_there, not_as_often])
@pytest.mark.parametrize("way", ["pin", "auto"])
def test_exchanges_that_some_tiles_do_not_reach_are_refused_at_their_line(kernel: Any, way: Any) -> None:
    with pytest.raises(KtirError, match=r"lets tile . receive from tile ., which does not get there") as caught:
        kernel[2].using(on="chip", way=way)(np.ones((2, 64), np.float32), np.zeros((2, 64), np.float32))
    assert str(caught.value).startswith(__file__)
