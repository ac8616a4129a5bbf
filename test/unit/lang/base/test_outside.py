"""A trace is taken again for what is the same to the bit alone: parameters, globals, closures, defaults, and what objects have."""

import dataclasses
import functools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.lang.base.outside import Exactly, frozen

NAN = float("nan")
APART: list[list[Any]] = [
    [0.0, -0.0, 0, False, np.float64(0), np.float64(-0.0), np.float32(0), np.float16(-0.0), np.int64(0), np.bool_(0), 0j],
    [1, 1.0, True, np.float64(1), "1", b"1", 1 + 0j],
    [(1, 2), (1.0, 2), (True, 2), [1, 2], (0.0, -0.0), (-0.0, 0.0)],
    [{1: 2}, {1.0: 2}, {"1": 2}, {1: 2.0}],
    [range(0), range(1, 1), slice(0, 1), slice(0, 1.0)],
    [frozenset({1}), frozenset({1.0}), {1}, deque([1])],
    [np.zeros(2), -np.zeros(2), np.zeros((2, 1)), np.array([0, 0.0], object), np.array([0.0, 0.0], object)],
]


@pytest.mark.parametrize("values", APART)
def test_what_can_be_told_apart_is_apart(values: list[Any]) -> None:
    assert len({frozen(v) for v in values}) == len(values)
    assert len({frozen(v) for v in values} | {frozen(v) for v in values}) == len(values)


def test_what_is_the_same_is_found() -> None:
    assert Exactly(NAN) == Exactly(NAN * 2)
    assert Exactly(np.float32(2)) == Exactly(np.float32(2))
    assert Exactly(-0.0) != Exactly(0.0)
    ends: list[Any] = [1]
    assert frozen(ends) == frozen([1])
    ends.append(ends)
    assert frozen(ends) == frozen(ends)  # it ends


class Settings:
    factor = 1.0


class Slots:
    __slots__ = ("factor",)


@dataclasses.dataclass(eq=False)
class Scaled:
    """What a kernel calls by a method and an operator of it."""

    value: float
    offset: float = 0.0

    def of(self, v: Any) -> Any:
        return v * self.twice

    @property
    def twice(self) -> float:
        return self.value * 1

    def __call__(self, v: Any) -> Any:
        return v + self.offset


def helper(v: Any, by: float = 1.0) -> Any:
    return v * by


slots, scaled, plain, group, zero = Slots(), Scaled(1.0), SimpleNamespace(inner=SimpleNamespace(factor=1.0)), {1}, 0.0
part, method = functools.partial(helper, by=1.0), scaled.of


def _slots(value: Any) -> None:
    slots.factor = value


def _class(value: Any) -> None:
    Settings.factor = value


def _field(value: Any) -> None:
    scaled.value = value


def _offset(value: Any) -> None:
    scaled.offset = value - 1


def _inner(value: Any) -> None:
    plain.inner.factor = value


def _set(value: Any) -> None:
    group.clear()
    group.add(value)


def _default(value: Any) -> None:
    helper.__defaults__ = (value,)


def _partial(value: Any) -> None:
    global part
    part = functools.partial(helper, by=value)


CHANGES: list[tuple[Callable[[Any], Any], Callable[[Any], None]]] = [
    (lambda v: v * slots.factor, _slots), (lambda v: v * Settings.factor, _class), (lambda v: scaled.of(v), _field),
    (lambda v: scaled(v), _offset), (lambda v: v * plain.inner.factor, _inner), (lambda v: v * max(group), _set),
    (lambda v: helper(v), _default), (lambda v: part(v), _partial), (lambda v: method(v), _field),
]  # fmt: skip


@pytest.mark.parametrize(("body", "change"), CHANGES)
def test_what_changes_is_traced_again(body: Any, change: Callable[[Any], None]) -> None:
    @lang.kernel
    def run(x, y):
        y[...] = body(x[...])

    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    for value in (2.0, 3.0, 1.0):
        change(value)
        run(x, y)
        assert y.tolist() == [value] * 3


def test_objects_of_which_one_is_gone_are_not_taken_for_each_other() -> None:
    """Two that lie at one address one after the other, as they do here, differ by what no name says."""

    class Hidden:
        def __init__(self, value: float) -> None:
            self.__dict__["the value"] = value

    @lang.kernel
    def run(x, y, *, by):
        y[...] = x[...] * vars(by)["the value"]

    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    for value in (2.0, 3.0, 4.0, 5.0):
        run(x, y, by=Hidden(value))
        assert y.tolist() == [value] * 3


def test_signs_of_zeros_and_types_of_parameters_count() -> None:
    @lang.kernel
    def signed(x, y, *, p):
        y[...] = np.copysign(x[...], p)

    @lang.kernel
    def of_global(x, y):
        y[...] = np.copysign(x[...], zero)

    @lang.kernel
    def nested(x, y, *, p):
        y[...] = np.maximum(x[...] * p[0], 0.5)

    global zero
    x, y, whole = np.ones(3, np.float32), np.zeros(3, np.float32), np.full(3, 3, np.int32)
    for zero in (0.0, -0.0, np.float32(-0.0), 0.0):
        for run in (lambda: signed(x, y, p=zero), lambda: of_global(x, y), lambda: signed(x, y, p=(zero, "")[0])):  # noqa: B023
            run()
            assert np.array_equal(y, np.copysign(x, zero))
    for p in (1, 1.0, True, np.float64(1)):
        nested(whole, found := np.zeros(3, np.float64), p=(p,))
        nested.using(on="numpy")(whole, wanted := np.zeros(3, np.float64), p=(p,))
        assert np.array_equal(found, wanted)


def test_a_helper_that_is_a_parameter_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    @lang.kernel
    def run(x, y, *, act):
        y[...] = act(x[...])

    def act(v: Any) -> Any:
        return v * Settings.factor

    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    for value in (2.0, 3.0):
        monkeypatch.setattr(Settings, "factor", value)
        run(x, y, act=act)
        assert y.tolist() == [value] * 3
