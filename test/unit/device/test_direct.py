"""A compiled graph that is one program is launched without the code around it, from its fourth call on: with the same results."""

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

from ktir.device.tensors.storage import allocation_of
from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.lowering.inductor.running.direct import Direct, launched
from ktir.lowering.inductor.running.guarded import Guarded
from ktir.runtime import cache, metrics
from ktir.runtime.device import Binding
from ktir.runtime.kernel import Kernel
from ktir.runtime.memory.allocation import Allocation
from ktir.runtime.memory.card import card
from ktir.runtime.prepared import Prepared

CALLS = 6


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Direct]:
    """The graphs that the test calls."""
    found: list[Direct] = []
    plain = Guarded.__call__

    def noted(self: Guarded, *inputs: Any) -> Any:
        assert isinstance(self.compiled, Direct)
        found.append(self.compiled)
        return plain(self, *inputs)

    monkeypatch.setattr(Guarded, "__call__", noted)
    return found


def rows(n: int = 5) -> torch.Tensor:
    return torch.randn(n, 64, generator=torch.Generator().manual_seed(0)).half()


def views(x: torch.Tensor, y: torch.Tensor) -> Any:
    both = x + y
    return both, both.view(-1)[64:], x, both.t()


def test_results(graphs: list[Direct], on_chip: None) -> None:
    """Buffers, parts of them, and inputs; each call gives tensors of its own."""
    compiled, kept = torch.compile(views, fullgraph=True), []
    for k in range(CALLS):
        x, y = rows() + k, rows() - 2 * k
        mine = x.to("spyre"), y.to("spyre")
        kept.append((compiled(*mine), views(x, y), mine[0]))
    for found, expected, given in kept:
        assert [f.stride() for f in found] == [e.stride() for e in expected]
        assert all(torch.equal(f.cpu(), e) for f, e in zip(found, expected, strict=True))
        assert found[2] is given
        assert found[1].untyped_storage().data_ptr() == found[0].untyped_storage().data_ptr() == found[3].untyped_storage().data_ptr()


def test_one_launch_is_all(graphs: list[Direct], on_chip: None) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).half().to("spyre")
    compiled, x = torch.compile(model, fullgraph=True), rows().to("spyre")
    with torch.no_grad(), metrics.counted() as launches:
        found = [compiled(x).cpu() for _ in range(CALLS)]
    assert launches() == metrics.Launches(chip=CALLS)
    assert all(torch.equal(f, found[0]) for f in found)
    assert graphs[-1].again is not None


def test_a_steady_launch_is_prepared(on_chip: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked for anew; in inference mode tensors are those of that mode."""
    compiled, x = torch.compile(lambda x: x * 5, fullgraph=True), rows().to("spyre")
    for mode in (False, True, False, True):
        with torch.inference_mode(mode):
            for _ in range(CALLS):
                compiled(x)
    monkeypatch.setattr(Kernel, "__call__", None)
    for k in range(2 * CALLS):
        x.copy_(rows() + k)  # another form is valid
        for mode in (False, True):
            with torch.inference_mode(mode):
                found = compiled(x)
            assert found.is_inference() is mode
            assert torch.equal(found.cpu(), (rows() + k) * 5)


def test_a_steady_launch_looks_for_what_has_changed_alone(on_chip: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms of what nobody has written are known; those of others are found, whoever wrote, and where another tensor is given."""
    compiled = torch.compile(lambda x, y, n: x * 5 + y * n, fullgraph=True)
    numbers = rows().round()  # of which all sums are exact
    x, y, n = numbers.to("spyre"), numbers.to("spyre"), torch.tensor([3]).to("spyre")
    for _ in range(CALLS):
        compiled(x, y, n)
    looked: list[str] = []
    plain = Binding.read

    def noted(self: Binding, allocation: Any) -> Any:
        looked.append(self.argument.dtype)
        return plain(self, allocation)

    number = Allocation.number

    def noted_number(self: Allocation, wanted: Any, *rest: Any) -> Any:
        looked.append(wanted.view.dtype)
        return number(self, wanted, *rest)

    monkeypatch.setattr(Binding, "read", noted)
    monkeypatch.setattr(Allocation, "number", noted_number)
    compiled(x, y, n)
    assert not looked
    before = allocation_of(n).forms
    place = next(iter(before.values())).address
    n.copy_(torch.tensor([4]))
    assert torch.equal(compiled(x, y, n).cpu(), numbers * 5 + numbers * 4)
    assert looked == ["int64"]
    assert [f.address for f in allocation_of(n).forms.values()] == [place]  # no other one for the program
    y.copy_(numbers + 1)
    assert torch.equal(compiled(x, y, n).cpu(), numbers * 5 + (numbers + 1) * 4)
    assert torch.equal(compiled(y.clone(), y, n).cpu(), (numbers + 1) * 5 + (numbers + 1) * 4)
    assert len(looked) == 3


def test_numbers_of_the_host_by_turns(on_chip: None) -> None:
    """Numbers that come anew, in tensors that take turns, and a program between that writes one: each is a relayout."""
    numbers = rows().round()
    x, own = numbers.to("spyre"), [torch.tensor(k).to("spyre") for k in (3, 7)]
    compiled, next_one = torch.compile(lambda x, n: x * n, fullgraph=True), torch.compile(lambda n: n.add_(1), fullgraph=True)
    value = [3, 7]
    for k in range(5 * CALLS):
        n = k % 3 % 2
        if k % 5:
            value[n] = k - 9
            own[n].copy_(torch.tensor(value[n]))
        elif k % 2:
            value[n] += 1
            next_one(own[n])
        before = card().statistics.moves["Relayout"]
        assert torch.equal(compiled(x, own[n]).cpu(), numbers * value[n])
        assert not k % 5 or k < CALLS or card().statistics.moves["Relayout"][0] == before[0] + 1
        assert int(own[n].cpu()) == value[n]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_a_number_that_host_and_programs_write(dtype: torch.dtype, on_chip: None) -> None:
    """In any order: a copy from the host, a program that counts it up in place, programs that read it, each of which knows its place."""
    numbers, own, value = rows().round(), torch.tensor(3, dtype=dtype).to("spyre"), 3
    x, drawn = numbers.to("spyre"), torch.Generator().manual_seed(0)
    compiled, counted = torch.compile(lambda x, n: x * n, fullgraph=True), torch.compile(lambda n: n.add_(1), fullgraph=True)
    for k in range(60):
        match int(torch.randint(4, (), generator=drawn)):
            case 0:
                value = int(torch.randint(-9, 9, (), generator=drawn))
                own.copy_(torch.tensor(value))
            case 1:
                counted(own)
                value += 1
        assert torch.equal(compiled(x, own).cpu(), numbers * value), k


def test_a_steady_launch_that_fails(on_chip: None) -> None:
    """It says what a launch says that is not steady, and later ones succeed."""
    table, own = rows().to("spyre"), torch.tensor([4, 0, 3])
    compiled, x = torch.compile(lambda table, x: table[x], fullgraph=True), own.to("spyre")
    for _ in range(CALLS):
        compiled(table, x)
    for wrong in (5, -9, 5):
        x.copy_(torch.tensor([4, 0, wrong]))
        with pytest.raises(IndexError, match="out of"):
            compiled(table, x)
        x.copy_(own)
        assert torch.equal(compiled(table, x).cpu(), rows()[own])


def test_a_fault_in_a_steady_launch_shows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What no data bring about is said, and not left to another way of launching."""
    compiled, x = torch.compile(lambda x: x * 7, fullgraph=True), rows().to("spyre")
    strict = torch.compile(lambda x: x * 7 + 1, fullgraph=True, options={"fallback": "error"})
    for _ in range(CALLS):
        _ = compiled(x), strict(x)

    def faulty(*_: Any) -> bool:
        raise TypeError("planted")

    monkeypatch.setattr(Prepared, "launch", faulty)
    assert torch.equal(compiled(x).cpu(), rows() * 7)
    assert "the emulated chip failed: TypeError: planted\nnote: the fault lies in ktir, not in the model; the graph is in" in caplog.text
    with pytest.raises(KtirError, match="the emulated chip failed: TypeError: planted"):
        strict(x)


def test_written_inputs_count_writes(graphs: list[Direct], on_chip: None) -> None:
    def step(state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        state.mul_(2)
        return state + x

    state, own = rows().to("spyre"), rows()
    compiled, x = torch.compile(step, fullgraph=True), rows().to("spyre")
    for _ in range(CALLS):
        before = state._version
        assert torch.equal(compiled(state, x).cpu(), step(own, rows()))
        assert state._version > before
    assert torch.equal(state.cpu(), own)
    assert graphs[-1].again is not None


def test_states_that_are_written_in_place(graphs: list[Direct]) -> None:
    """What a launch writes where it lies is known to the next one, whoever writes it in between, of whichever tensors."""

    def step(one: torch.Tensor, two: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        one.mul_(2)
        two.add_(x)
        at.add_(1)
        return x + at

    compiled, x = torch.compile(step, fullgraph=True), rows().round().to("spyre")
    own: list[torch.Tensor] = [rows().round(), rows().round() + 1, torch.tensor([3])]
    there = [t.to("spyre") for t in own]
    for k in range(4 * CALLS):
        if k == 2 * CALLS:  # the host writes one
            for state in (own[1], there[1]):
                state[2] = 5
        if k == 2 * CALLS + 2:  # another program writes one
            for state in (own[0], there[0]):
                state.neg_()
        if k == 3 * CALLS:  # another tensor takes the place of one
            own[0], there[0] = rows().round(), rows().round().to("spyre")
        if k == 4 * CALLS - 4:  # two launches later one has a value that no program takes
            for state in (own[2], there[2]):
                state.fill_((1 << 30) - 2)
        if k % 4 == 3:
            for state in (own[0], there[0]):
                state.div_(16)
        with metrics.counted() as ran:
            found = compiled(there[0], there[1], there[2], x)
        assert ran() == (metrics.Launches(executor=1) if k >= 4 * CALLS - 2 else metrics.Launches(chip=1)), k
        assert torch.equal(found.cpu(), step(own[0], own[1], own[2], rows().round())), k
        assert all(torch.equal(t.cpu(), o) for t, o in zip(there, own, strict=True)), k
    assert graphs[-1].again is not None


def test_states_are_as_before_where_a_launch_fails(on_chip: None) -> None:
    """Rows and scattered rows are written in place by then: without an undoing, PyTorch, which says why, adds to them once more."""

    def step(one: torch.Tensor, two: torch.Tensor, at: torch.Tensor, rows_of: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        one.add_(x)
        two[at] = x[:2] * 2 + two[at]
        return x[rows_of] @ one.T

    compiled, own = torch.compile(step, fullgraph=True), [rows().round(), rows().round() + 1]
    there, given = [t.to("spyre") for t in own], [torch.tensor([4, 1]), torch.tensor([0, 3]), rows().round()]
    inputs = [t.to("spyre") for t in given]
    for k in range(2 * CALLS):
        wrong = torch.tensor([1, 7] if k > CALLS and k % 2 else [0, 3])
        inputs[1].copy_(wrong)
        if 7 in wrong:
            for call, states, rest in ((step, own, [given[0], wrong, given[2]]), (compiled, there, inputs)):
                with pytest.raises(IndexError, match="out of bounds"):
                    call(*states, *rest)
        else:
            assert torch.equal(compiled(*there, *inputs).cpu(), step(*own, *given)), k  # sums of integers
        assert all(torch.equal(t.cpu(), o) for t, o in zip(there, own, strict=True)), k


def test_states_that_others_read_in_other_forms(graphs: list[Direct], on_chip: None) -> None:
    """A launch that writes a state where it is leaves no form of it as it was before, whoever has asked for it."""

    def step(state: torch.Tensor, x: torch.Tensor) -> None:
        state.add_(x)

    def turned(state: torch.Tensor) -> torch.Tensor:
        return state.T.contiguous().sum(1)

    added, read = torch.compile(step, fullgraph=True), torch.compile(turned, fullgraph=True)
    own, given = (torch.arange(64 * 128).reshape(64, 128) % k for k in (7.0, 5.0))
    state, x = own.to("spyre"), given.to("spyre")
    for k in range(3 * CALLS):
        own.add_(given)
        added(state, x)
        if k >= CALLS:
            assert torch.equal(read(state).cpu(), turned(own)), k
            assert torch.equal(read(state).cpu(), turned(own)), k
        assert torch.equal(state.cpu(), own), k


def test_an_interrupt_behind_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has written of a state by then is known to programs that do not take it."""

    def step(state: torch.Tensor, x: torch.Tensor) -> None:
        state.add_(x)

    plain = Machine.launch

    def interrupted(machine: Machine, *args: Any) -> None:
        plain(machine, *args)
        raise KeyboardInterrupt

    added, read = torch.compile(step, fullgraph=True), torch.compile(lambda state: state * 4, fullgraph=True)
    own, large = torch.arange(8), torch.full((8,), 1 << 29)
    state, x = own.to("spyre"), torch.ones_like(own).to("spyre")
    for k in range(2 * CALLS):
        added(state, x)
        assert torch.equal(read(state).cpu(), (own + k + 1) * 4), k
    x.copy_(large)
    monkeypatch.setattr(Machine, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        added(state, x)
    monkeypatch.undo()
    assert torch.equal(state.cpu(), own + 2 * CALLS + large)
    assert torch.equal(read(state).cpu(), (own + 2 * CALLS + large) * 4)


def test_calls_within_a_call(on_chip: None) -> None:
    """A call is watched by itself: threads that call meanwhile do not decide with it what later ones are."""
    own = rows().to("spyre")

    class Launcher:
        def direct(self, tensors: Any, given: Any, made: Any) -> Any:
            return print

        def maker(self, made: Any, parts: Any) -> Any:
            return None

    launcher = Launcher()

    def compiled(x: torch.Tensor) -> list[torch.Tensor]:
        launched(launcher, [x])
        if calls and calls.pop():
            other = Thread(target=graph, args=(x,))
            other.start()
            other.join()
            _ = x + 1
        return [x]

    calls, graph = [False, True, True, False, True, False], Direct(compiled)
    for _ in range(4):
        graph(own)
    assert graph.again is None


def test_inputs_at_other_places(graphs: list[Direct], on_chip: None) -> None:
    """Dynamo guards sizes and strides, and no offsets."""
    compiled = torch.compile(lambda x: x * 2, fullgraph=True)
    many = torch.stack([rows() + k for k in range(CALLS)])
    there = many.to("spyre")
    for k in (*range(CALLS), 0, 3):
        assert torch.equal(compiled(there[k]).cpu(), many[k] * 2)
    assert torch.equal(compiled(rows().to("spyre")).cpu(), rows() * 2)
    assert graphs[-1].again is not None


def test_operators_on_one_tensor_twice(on_chip: None) -> None:
    x, y = rows().to("spyre"), rows(6)[1:].clone().to("spyre")
    for _ in range(CALLS):
        assert torch.equal((x - x).cpu(), rows() - rows())
    for _ in range(CALLS):
        assert torch.equal((x - y).cpu(), rows() - rows(6)[1:])
        assert torch.equal((y - y).cpu(), rows() - rows())


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("call", [doubled, torch.compile(doubled)])
def test_a_sign_that_is_noted_apart(call: Callable[[torch.Tensor], torch.Tensor], on_chip: None) -> None:
    """A steady launch takes memory as it is; what has its sign or its zeros elsewhere does not get there."""
    x = rows().to("spyre")
    for _ in range(CALLS):
        call(x)
    zeros = torch.ops.aten._efficientzerotensor([5, 64], dtype=x.dtype, device=x.device)
    for marked, wanted in ((torch.ops.aten._neg_view(x), -rows()), (x, rows()), (zeros, 0 * rows())):
        assert torch.equal(call(marked).cpu(), wanted * 2)


def random(x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn(5, 64, device=x.device).half()


def sorted_rows(x: torch.Tensor) -> Any:
    return torch.linalg.qr(x.float())[1].half() + x[:, :64][:1]


def to_host(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).to("cpu")


@pytest.mark.parametrize("function", [random, sorted_rows, to_host])
def test_what_is_more_than_a_launch(function: Callable[[torch.Tensor], Any], graphs: list[Direct]) -> None:
    compiled = torch.compile(function)
    for k in range(CALLS):
        x = rows() + k
        torch.manual_seed(k)
        found = compiled(x.to("spyre")).cpu()
        torch.manual_seed(k)
        torch.testing.assert_close(found, function(x), atol=2**-8, rtol=2**-8)
    assert all(graph.again is None for graph in graphs)


def test_constants_of_a_graph(graphs: list[Direct], on_chip: None) -> None:
    table = torch.arange(64).half()
    compiled = torch.compile(lambda x: x + table.to(x.device), fullgraph=True)
    for k in range(CALLS):
        assert torch.equal(compiled((rows() + k).to("spyre")).cpu(), rows() + k + table)


def test_a_program_that_is_gone_is_loaded_again(graphs: list[Direct], on_chip: None) -> None:
    compiled, x = torch.compile(lambda x: x - 3, fullgraph=True), rows().to("spyre")
    for _ in range(CALLS):
        compiled(x)
    cache.set_limit(0)
    try:
        assert torch.equal(compiled(x).cpu(), rows() - 3)
        assert torch.equal(compiled(x).cpu(), rows() - 3)
    finally:
        cache.set_limit(1024)


def test_nothing_is_kept(graphs: list[Direct], on_chip: None) -> None:
    compiled = torch.compile(lambda x: x * 3, fullgraph=True)
    for _ in range(CALLS):
        compiled(rows(7).to("spyre"))
    gc.collect()
    before = card().used
    for _ in range(3):
        compiled(rows(7).to("spyre"))
    assert card().used == before


def test_forms_that_are_gone_are_not_read(graphs: list[Direct], on_chip: None) -> None:
    """Somebody else may keep what a launch has read before its tensor was written."""
    compiled, x, weight = torch.compile(lambda x, w: x + w, fullgraph=True), rows().to("spyre"), rows().to("spyre")
    for _ in range(CALLS):
        compiled(x, weight)
    kept = [form for t in (x, weight) for form in allocation_of(t).forms.values()]
    assert kept
    weight.copy_(rows() + 7)
    assert torch.equal(compiled(x, weight).cpu(), rows() + (rows() + 7))
    weight.mul_(2)
    assert torch.equal(compiled(x, weight).cpu(), rows() + (rows() + 7) * 2)
    weight.data = rows().to("spyre")  # another memory
    assert torch.equal(compiled(x, weight).cpu(), rows() * 2)
