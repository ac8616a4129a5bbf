"""Calls that have come before: they do what was found out then, ask nothing again, and give what the first one gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from eager_calls import close, half, there
from torch.nn import functional as F

from ktir.device.operators import eager, fallback, known
from ktir.device.tensors.storage import allocation_of
from ktir.emulator.machine import Machine
from ktir.runtime import metrics
from ktir.runtime.memory.card import card

CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "two": lambda x: x + x.flip(0),
    "number": lambda x: x * 2.5,
    "dims": lambda x: x.sum([0, 1], keepdim=True),
    "list": lambda x: torch.cat([x, x], 1),
    "several": lambda x: F.layer_norm(x, [13]),
    "in place": lambda x: x.clone().add_(x),
    "itself": lambda x: (y := x.clone()).mul_(y),
    "out": lambda x: torch.sub(x, 1, out=torch.empty_like(x)),
    "several out": lambda x: torch.max(x, 1, out=(x.new_empty(5), x.new_empty(5, dtype=torch.int64))),
    "part": lambda x: x.clone()[1:].add_(1),
    "transposed": lambda x: x.clone().t().mul_(x.t()),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_the_first_one_gives(name: str) -> None:
    for k in range(5):
        x = half(5, 13) + k
        with metrics.counted() as launches:
            close(CALLS[name](x.to("spyre")), CALLS[name](x))
        assert not launches().torch


@pytest.mark.parametrize("name", [name for name in CALLS if name != "part"])
def test_nothing_is_asked_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = half(5, 13)
    before = [CALLS[name](x.to("spyre")) for _ in range(4)]
    asked: list[Any] = []
    monkeypatch.setattr(fallback, "check_devices", lambda *given: asked.append(given))
    close(CALLS[name](x.to("spyre")), CALLS[name](x))
    assert not asked
    del before


def test_what_is_computed_in_place_is_not_copied() -> None:
    x, y = there([half(64, 64), half(64, 64)])
    for k in range(4):
        moved = dict(card().statistics.moves)
        x.add_(y)
        assert k < 2 or {kind for kind, count in card().statistics.moves.items() if count != moved[kind]} <= {"H2D"}  # of addresses
    close(x, half(64, 64) + half(64, 64) + half(64, 64) + half(64, 64) + half(64, 64))


def test_views_see_what_is_computed_in_place() -> None:
    x, y = half(8, 64).to("spyre"), half(8, 64)
    rows, flat = x[2:4], x.view(-1)
    for _ in range(4):
        version = x._version
        x.mul_(0.5)
        y.mul_(0.5)
        assert x._version > version
        close(rows, y[2:4])
        close(flat, y.view(-1))


def test_memory_is_given_back() -> None:
    x, y = half(64, 64).to("spyre"), half(64, 64).to("spyre")
    for _ in range(3):
        x.add_(y)
    used = card().used
    for _ in range(5):
        x.add_(y)
    assert card().used == used
    assert allocation_of(x).read().nbytes == 64 * 64 * 2


def test_calls_are_told_apart() -> None:
    x = torch.arange(1, 6, dtype=torch.float32)
    on_device = x.to("spyre")
    for _ in range(3):
        for number in (0.0, -0.0, 1, True, 1.0):
            close(torch.div(on_device, number), torch.div(x, number))
        for whole in (x.to(torch.int64), x.to(torch.bool)):
            close(whole.to("spyre") + 1, whole + 1)


def test_an_index_out_of_range_is_refused_each_time() -> None:
    x, good, bad = half(5, 13).to("spyre"), torch.tensor([0, 4]).to("spyre"), torch.tensor([0, 5]).to("spyre")
    for _ in range(3):
        close(x.index_select(0, good), half(5, 13)[[0, 4]])
        with pytest.raises(IndexError, match="index out of range"):
            x.index_select(0, bad)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """What has an element for each run of the machine."""
    found: list[None] = []
    launch = Machine.launch

    def counted(self: Machine, *args: Any) -> None:
        found.append(None)
        launch(self, *args)

    monkeypatch.setattr(Machine, "launch", counted)
    return found


@pytest.mark.parametrize("call", [lambda x, i: x[i], lambda x, i: x.gather(0, i[:, None]), lambda x, i: x.clone().index_add_(0, i, x[:2])])
def test_a_program_that_does_not_take_its_indices_runs_once(call: Callable[..., Any], runs: list[None]) -> None:
    x, good, bad = half(5, 13), torch.tensor([0, 4]), torch.tensor([0, 5])
    here, taken, refused = there([x, good, bad])
    for _ in range(4):
        runs.clear()
        close(call(here, taken), call(x, good))
    most = len(runs)
    assert most
    for _ in range(2):
        runs.clear()
        with pytest.raises((IndexError, RuntimeError)) as theirs:
            call(x, bad)
        with pytest.raises(theirs.type) as ours:
            call(here, refused)
        assert str(ours.value) == str(theirs.value)
        assert len(runs) <= most
        runs.clear()
        close(call(here, taken), call(x, good))
        assert len(runs) == most


def test_statistics_of_a_batch_norm_are_written_unseen() -> None:
    x, mean, var = half(4, 3, 5).float(), torch.zeros(3), torch.ones(3)
    given = there([x, mean, var])
    for _ in range(4):
        versions = [t._version for t in given]
        close(F.batch_norm(*given, training=True), F.batch_norm(x, mean, var, training=True))
        assert given[0]._version == versions[0]
        close(given[1:], [mean, var])


def test_what_has_changed_is_forgotten() -> None:
    x = half(5, 13).to("spyre")
    for _ in range(3):
        torch.neg(x)
    assert known.action(torch.ops.aten.neg.default, (x,), {})
    eager.forget(torch.ops.aten.neg.default)
    assert known.action(torch.ops.aten.neg.default, (x,), {}) is None


def test_calls_that_are_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_MOST", 2)
    x = half(5, 13).to("spyre")
    for number in (2.0, 3.0, 4.0, 5.0):
        _ = x * number
        _ = x + x
    assert known.action(torch.ops.aten.add.Tensor, (x, x), {})
    assert known.action(torch.ops.aten.mul.Tensor, (x, 2.0), {}) is None


def test_the_default_type_of_floats_is_that_of_each_call() -> None:
    numbers, before = torch.arange(5, dtype=torch.int32), torch.get_default_dtype()
    given = numbers.to("spyre")
    try:
        for dtype in (torch.float32, torch.float16, torch.float32):
            torch.set_default_dtype(dtype)
            for _ in range(3):
                for f in (lambda x: x + 1.5, lambda x: x / 2, torch.sigmoid):
                    assert f(given).dtype == f(numbers).dtype == dtype
    finally:
        torch.set_default_dtype(before)
