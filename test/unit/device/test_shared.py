"""What shares memory on the device, or holds it: parameters that modules and optimizers share, lists that are written, refused calls."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from chip import only_on_chip
from combinations import each_once
from torch import nn
from torch.fx import symbolic_trace

from ktir.diagnostics import Unsupported
from ktir.lowering.inductor.running.guarded import Guarded
from ktir.runtime import metrics, notices


@pytest.mark.turn
@pytest.mark.parametrize(("before", "fused"), each_once([False, True], [False, True]))
@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_training_with_shared_weights_goes_as_on_the_host(before: bool, fused: bool) -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        table, out = nn.Embedding(11, 8), nn.Linear(8, 11)
        out.weight = table.weight
        model, x = nn.Sequential(table, out), torch.arange(9)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        if before:
            model(x).sum().backward()
            optimizer.step()
        model.to(device)
        x = x.to(device)
        assert out.weight is table.weight
        assert out.weight.device.type == device
        if not before:
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        found = []
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(x), x.flip(0))
            if not before:
                optimizer.zero_grad()
            loss.backward()
            found.append(loss.item())
            if not before:
                optimizer.step()
        gradients = [p.grad.sum().item() for p in model.parameters() if p.grad is not None]
        return [*found, *gradients]

    assert losses("spyre") == pytest.approx(losses("cpu"), rel=1e-4, abs=1e-4)


def both(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    return a + b


def rows_and_all(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[:5].mul_(2)
    b.add_(1)
    return a.flatten()[:3]


@pytest.mark.parametrize(("function", "calls"), each_once([both, rows_and_all], [1, 6]))
def test_inputs_that_overlap_later(function: Callable[..., torch.Tensor], calls: int, caplog: pytest.LogCaptureFixture) -> None:
    """A graph of inputs that were apart, and one that is launched without the code around it, see that a write to one is to another."""
    notices.forget()
    compiled, one = torch.compile(function), torch.arange(512.0).reshape(8, 8, 8) % 9
    strict = torch.compile(lambda a, b: function(a, b) * 2, options={"fallback": "error"})
    for _ in range(calls):
        a, b = (one.to("spyre") for _ in range(2))
        assert torch.equal(compiled(a, b).cpu(), function(one.clone(), one.clone()))
        strict(one.to("spyre"), one.to("spyre"))
    assert "shares elements" not in caplog.text
    for first, second in ((0, 0), (0, 128), (128, 0), (0, 512)):
        own = torch.cat([one.flatten(), one.flatten() + 3])
        there = own.to("spyre")
        mine, theirs = ([t[k : k + 512].view(8, 8, 8) for k in (first, second)] for t in (there, own))
        assert torch.equal(compiled(*mine).cpu(), function(*theirs)), (first, second)
        assert torch.equal(there.cpu(), own), (first, second)
        if abs(first - second) < 512:
            with pytest.raises(Unsupported, match="an input that is written shares elements with another one"):
                strict(*mine)
            assert torch.equal(there.cpu(), own), (first, second)
    assert "an input that is written shares elements with another one, which PyTorch's tracing has not seen" in caplog.text
    a, b = (one.to("spyre") for _ in range(2))
    with only_on_chip():
        assert torch.equal(compiled(a, b).cpu(), function(one.clone(), one.clone()))


@pytest.mark.parametrize(("first", "calls"), each_once([512, 128], [1, 6]))
def test_inputs_that_overlap_otherwise_later(first: int, calls: int) -> None:
    """Views of one memory, compiled where they are apart, or where they are not, and called where they are or are not."""
    compiled = torch.compile(both)
    for begins in (*[(0, first)] * calls, (0, 128), (0, 512), (128, 0), (128, 256), (0, 0), (0, first)):
        own = torch.arange(1024.0) % 9
        there = own.to("spyre")
        mine, theirs = ([t[k : k + 512].view(8, 8, 8) for k in begins] for t in (there, own))
        assert torch.equal(compiled(*mine).cpu(), both(*theirs)), begins
        assert torch.equal(there.cpu(), own), begins


def test_inputs_beside_each_other_are_apart(caplog: pytest.LogCaptureFixture, on_chip: None) -> None:
    """Columns of one matrix have no element in common, wherever they begin and end."""
    notices.forget()
    compiled = torch.compile(both)
    for k in range(6):
        own = torch.arange(2 * 8 * 128.0).reshape(2, 8, 128) % 9
        there = own.to("spyre")
        mine, theirs = ([t[0, :, :64], t[1 - k % 2, :, 64:]] for t in (there, own))
        assert torch.equal(compiled(*mine).cpu(), both(*theirs)), k
        assert torch.equal(there.cpu(), own), k
    assert "shares elements" not in caplog.text


def test_a_held_parameter_is_replaced_with_a_word() -> None:
    import weakref

    module = nn.Linear(4, 4)
    held = weakref.ref(module.weight)
    with pytest.warns(UserWarning, match="of Linear is held by a graph or a weak reference, so the device gets a new one"):
        module.to("spyre")
    assert held() is not module.weight
    assert module.weight.device.type == "spyre"


@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_programs_see_what_the_host_writes_to_lists() -> None:
    tensors = [torch.ones(4, device="spyre"), torch.ones(4, device="spyre")[1:]]
    assert all(torch.equal((t + 1).cpu(), torch.full(t.shape, 2.0)) for t in tensors)
    torch.ops.aten._amp_foreach_non_finite_check_and_unscale_(tensors, torch.zeros((), device="spyre"), torch.full((), 0.5, device="spyre"))
    for t in tensors:
        assert torch.equal((t + 1).cpu(), torch.full(t.shape, 1.5))
        assert torch.equal(t.cpu(), torch.full(t.shape, 0.5))


def test_a_copy_to_a_part_of_its_source_is_refused() -> None:
    x = torch.arange(10.0, device="spyre")
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[1:].copy_(x[:-1])
    x[5:].copy_(x[:5])
    x.copy_(x)
    assert x.tolist() == [0, 1, 2, 3, 4] * 2


def test_a_refused_call_holds_no_tensors() -> None:
    def refused() -> None:
        held = torch.ones(1 << 16, device="spyre")
        with pytest.raises(RuntimeError, match="must match"):
            held.add(torch.ones(5, device="spyre"))

    found = []
    for _ in range(3):
        refused()
        gc.collect()
        found.append(torch.spyre.memory_allocated())  # type: ignore[attr-defined]
    assert found[0] == found[-1]


def _negated(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = z.cumsum(-1)
    x.neg_()
    y.neg_()
    z.add_(2)
    return old, y, x.t(), y.select(0, -1).unsqueeze(0).expand(3, *y.shape[1:])


def _first_and_second(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The second load is of the stick of which the store takes a part."""
    x[..., 0] = 0
    return (y * 2 + z,)


@pytest.mark.parametrize("device", ["cpu", "spyre"])
@pytest.mark.parametrize("run", [_negated, _first_and_second])
def test_interleaved_views_of_one_memory(run: Callable[..., Any], device: str) -> None:
    """PyTorch's tracing takes views of them as if the whole memory had their shape: a graph that returns some is its own."""
    torch._dynamo.reset()
    mine, theirs = (torch.arange(1, 15, dtype=torch.float32, device=where) for where in (device, "cpu"))
    more, other = (torch.ones(1, 7, device=where) for where in (device, "cpu"))
    with torch.no_grad(), metrics.counted() as launches:
        compiled = torch.compile(run, backend="ktir", dynamic=False)
        for _ in range(2):
            found = compiled(mine.view(1, 14)[:, ::2], mine.view(1, 14)[:, 1::2], more)
            expected = run(theirs.view(1, 14)[:, ::2], theirs.view(1, 14)[:, 1::2], other)
            for one, wanted in zip((*found, mine, more), (*expected, theirs, other), strict=True):
                assert torch.equal(one.cpu(), wanted)
    if run is _first_and_second:
        assert launches() == metrics.Launches(chip=2)
        return
    torch._dynamo.reset()
    strict = torch.compile(torch.no_grad()(run), backend="ktir", dynamic=False, options={"fallback": "error"})
    with pytest.raises(Exception, match=r"test_shared.py:\d+:1: error: result 't' of shape \[7, 1\] .* a view of an input"):
        strict(mine.view(1, 14)[:, ::2], mine.view(1, 14)[:, 1::2], more)


def test_a_graph_that_fails_behind_its_writes_has_not_written() -> None:
    def run(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.add_(1) + y.mul_(2) + z.add_(3),)

    def failing(*inputs: torch.Tensor) -> Any:
        run(*inputs)
        raise AssertionError("the shape is another one")

    memory, apart = torch.ones(6), torch.ones(3)
    found = Guarded(failing, symbolic_trace(run), strict=False)(memory[::2], memory[1::2], apart)
    assert torch.equal(found[0], torch.full((3,), 8.0))
    assert torch.equal(memory, torch.full((6,), 2.0))
    assert torch.equal(apart, torch.full((3,), 4.0))
