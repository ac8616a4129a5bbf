"""Conditions mean the same on NumPy, on the executor and on the chip: of numbers of the device, of values, and of both."""

# ruff: noqa: B023  (the body of a condition runs at once)

import contextlib
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.diagnostics import KtirError

CONDITIONS: list[Any] = [
    lambda t, _: ~(t > 1),
    lambda t, _: (t > 1) == (t < 3),
    lambda t, _: (t > 1) ^ (t < 3),
    lambda t, _: (t > 1) != True,  # noqa: E712
    lambda t, _: np.not_equal(t, 2) & (np.minimum(t, 2) >= 1),
    lambda t, ids: ids[t] > 3,
    lambda t, ids: ids[0] > 3,
    lambda t, ids: (t < 2) | (ids[t] > 3),
    lambda t, ids: ~(ids[t] > 3) & (t < 3),
    lambda t, ids: (t > 1) == (ids[t] > t),
    lambda t, ids: ids[t : t + 1] == ids[0] + 4,
    lambda _, ids: ids[:].max() > 8,
]


@lang.kernel
def chosen(x, ids, y):
    t = lang.tile_id()
    for number, condition in enumerate(CONDITIONS):
        own = lang.zeros(x.shape[1])

        @lang.when(condition(t, ids))
        def _():
            own[...] = x[t] * 2

        y[t, number] = own


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
def test_each_holds_where_it_does_for_numpy(on: Any) -> None:
    x = np.arange(1, 257, dtype=np.float32).reshape(4, 64)
    for ids in (np.array([5, 9, 2, 8], np.int32), np.array([1, 5, 2, 0], np.int32)):
        chosen.using(grid=4, on=on)(x, ids, y := np.full((4, len(CONDITIONS), 64), 7, np.float32))
        held = np.array([[bool(condition(np.int64(t), ids)) for condition in CONDITIONS] for t in range(4)])
        assert np.array_equal(y, np.where(held[..., None], 2 * x[:, None], 0))


@lang.kernel
def stores(x, ids, y):
    t = lang.tile_id()

    @lang.when(ids[t] > 3)
    def _():
        y[t] = x[t] * 2


def test_a_store_on_which_data_decides() -> None:
    """The chip refuses it at its line; the others run it."""
    x, ids = np.ones((4, 64), np.float32), np.array([5, 9, 2, 8], np.int32)
    for on in ("numpy", "executor"):
        stores.using(grid=4, on=on)(x, ids, y := np.zeros_like(x))
        assert y[:, 0].tolist() == [2, 2, 0, 2], on
    for way in ("pin", "auto"):
        with pytest.raises(
            KtirError, match=r"test_conditions.py:\d+:\d+: error: 'ktdp.store' op stands where data decides whether it runs"
        ):
            stores.using(grid=4, on="chip", way=way)(x, ids, np.zeros_like(x))


@pytest.mark.parametrize("on", ["numpy", "executor"])
@pytest.mark.parametrize("condition", ["t", "1", "None", "'a'", "[True]", "ids[t]", "ids[:] > 3", "x[t]", "np.float32(1)"])
def test_what_is_no_condition(on: Any, condition: str) -> None:
    space: dict[str, Any] = {"np": np, "lang": lang}
    text = f"def k(x, ids, y):\n    t = lang.tile_id()\n    @lang.when({condition})\n    def _(): y[t] = x[t]\n"
    exec(compile(text, "/condition.py", "exec"), space)
    with pytest.raises(KtirError, match=r"^/condition.py:3:\d+: error: 'when' expects a comparison of numbers, but got"):
        lang.kernel(space["k"])[4].using(on=on)(np.ones((4, 64), np.float32), np.ones(4, np.int32), np.zeros((4, 64), np.float32))


def test_what_a_condition_runs_runs_to_its_end() -> None:
    """Where the kernel catches what went wrong in it, the rest would be a part of it."""

    @lang.kernel
    def run(x, y):
        t = lang.zeros(64)
        with contextlib.suppress(lang.Mistake):

            @lang.when(lang.tile_id() == 1)
            def _():
                t[...] = t + 1
                x[99]

        y[lang.tile_id()] = t

    for on in ("numpy", "executor"):
        with pytest.raises(lang.Mistake, match="what runs under a condition expects to run to its end"):
            run[2].using(on=on)(np.ones((8, 64), np.float32), np.zeros((2, 64), np.float32))


def test_conditions_that_run_nothing() -> None:
    def bare(x, y):
        y[0] = x[0]

        @lang.when
        def _():
            y[1] = x[1]

    def alone(x, y):
        y[0] = x[0]
        lang.when(lang.tile_id() == 0)

    for body, said in ((bare, "expects a condition in brackets"), (alone, "runs the function before which it stands")):
        for on in ("numpy", "executor"):
            with pytest.raises(lang.Mistake, match=said) as raised:
                lang.kernel(body)[1].using(on=on)(np.ones((2, 64), np.float32), np.zeros((2, 64), np.float32))
            line = body.__code__.co_firstlineno
            assert raised.value.location is not None
            assert line < int(raised.value.location.split(":")[1]) <= line + 4


def test_a_bound_that_grows_is_refused_at_its_line_on_the_chip() -> None:
    @lang.kernel
    def triangle(x, y):
        total = lang.zeros(64)
        for i in lang.range(2):
            for j in lang.range(i + 1):
                total[...] = total + x[i + j]
        y[...] = total

    x = np.arange(512, dtype=np.float32).reshape(8, 64)
    triangle[1](x, y := np.zeros(64, np.float32))
    assert np.array_equal(y, x[0] + x[1] + x[2])
    line = triangle.function.__code__.co_firstlineno + 5
    with pytest.raises(KtirError, match=rf"{__file__}:{line}:\d+: error: .* has a bound that grows from trip to trip"):
        triangle[1].using(on="chip")(x, y)
