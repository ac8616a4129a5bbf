"""In-place writes: what eager refuses is refused in its words, and what PyTorch's tracing refuses is not called our fault."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ktir.device.autoload import register
from ktir.lowering.inductor.running.fallback import in_words


def compiled(f: Callable[..., object], *inputs: torch.Tensor) -> Any:
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(f, backend="spyre", dynamic=False)(*inputs)


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "a method": lambda x: x.expand(3, 4).add_(1),
    "of a value": lambda x: (x + 1).expand(3, 4).mul_(2),
    "an operator": lambda x: operator.iadd(x.expand(3, 4), 1),
    "several operands": lambda x: x.expand(3, 4).addcmul_(x, x),
    "a masked one": lambda x: x.expand(3, 4).masked_scatter_(x > 0, torch.ones(12)),
    "activations": lambda x: torch.nn.functional.relu_(x.expand(3, 4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_writes_to_elements_that_share_their_place_are_refused_as_in_eager(name: str) -> None:
    said = "more than one element of the written-to tensor refers to a single memory location"
    with pytest.raises(RuntimeError, match=said):
        REFUSED[name](torch.ones(3, 1))
    x = torch.ones(3, 1)
    with pytest.raises(RuntimeError, match=r"test_writes.py:\d+:1: error: .* " + said):
        compiled(REFUSED[name], x)
    assert torch.equal(x, torch.ones(3, 1))


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift", "add", "mul"])
def test_operators_that_make_a_tensor_write_to_none(on_chip: None, name: str) -> None:
    x, f = torch.arange(8, dtype=torch.int32)[:, None].expand(8, 8), getattr(operator, name)
    assert torch.equal(compiled(lambda x: f(x, 3), x), f(x, 3))


def test_what_fails_before_a_refused_write_is_told_as_it_is() -> None:
    def look_up(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        found = x.gather(0, at)
        x.expand(3, 4).add_(1)
        return found

    with pytest.raises(RuntimeError, match="index 5 is out of bounds"):
        compiled(look_up, torch.ones(3, 1), torch.tensor([[5]]))


def test_an_input_whose_elements_share_their_place(on_chip: None) -> None:
    x = torch.ones(3, 1).expand(3, 4)
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(lambda x: x.add_(1), x)
    torch.testing.assert_close(compiled(lambda x: x + 1, x), x + 1)


def test_writes_of_one_number_are_allowed_as_in_eager() -> None:
    """PyTorch's functionalization makes 25 of these ones."""
    x = torch.ones(3, 1)
    compiled(lambda x: x.expand(3, 4).fill_(7), x)
    assert torch.equal(x, torch.full((3, 1), 7.0))
    compiled(lambda x: x.expand(3, 4).zero_(), x)
    assert torch.equal(x, torch.zeros(3, 1))


OVERLAPPING: dict[str, Callable[[torch.Tensor], object]] = {
    "a sum": lambda x: x.as_strided((3, 3), (1, 1)).add_(1),
    "a copy": lambda x: x.as_strided((3, 3), (1, 1)).copy_(torch.arange(9.0).reshape(3, 3)),
    "windows": lambda x: x.unfold(0, 3, 2).mul_(2),
    "another tensor": lambda x: x.copy_(torch.as_strided_scatter(x, torch.arange(9.0).reshape(3, 3), (3, 3), (1, 1))),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_writes_to_windows_that_overlap_are_those_of_eager(name: str, caplog: pytest.LogCaptureFixture) -> None:
    x, expected = torch.arange(8.0), torch.arange(8.0)
    OVERLAPPING[name](expected)
    compiled(OVERLAPPING[name], x)
    assert torch.equal(x, expected)
    assert "elements share their place" in caplog.text
    assert "the fault lies in ktir" not in caplog.text


def test_windows_side_by_side_are_written_on_the_chip(on_chip: None) -> None:
    """Also those whose dims are no nest: 0, 2, 3, 5."""
    for size, stride in (((2, 3), (4, 1)), ((2, 2), (2, 3))):
        x, expected = torch.arange(8.0), torch.arange(8.0)
        expected.as_strided(size, stride).add_(1)
        compiled(lambda x, size=size, stride=stride: x.as_strided(size, stride).add_(1), x)
        assert torch.equal(x, expected)


BESIDE: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "columns": lambda z: (z[:, :6], z[:, 6:]),
    "every second row": lambda z: (z[::2], z[1::2]),
    "every second column, of all": lambda z: (z[:, :11:2], z[:, 1:11:2]),
    "three": lambda z: (z[:, :4], z[:, 8:], z[:, 4:8]),
    "numbers of two types": lambda z: (z[:, :6], z[:, 6:].view(torch.int32)),
}


def of_neighbours(a: torch.Tensor, b: torch.Tensor, *read: torch.Tensor) -> list[torch.Tensor]:
    b.mul_(2)
    a.add_(1)
    return [a + 1, b - 1, *(c + 1 for c in read)]


@pytest.mark.parametrize("engine", ["spyre", "ktir"])
@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_what_lies_between_the_elements_of_an_input_stays_as_it_is(device: str, engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """There another input may have elements that the same program writes."""
    register()
    torch._dynamo.reset()
    run = torch.compile(of_neighbours, backend="spyre", dynamic=False, options={"engine": engine})
    for name, views in BESIDE.items():
        mine, theirs = torch.arange(44.0).reshape(4, 11).to(device), torch.arange(44.0).reshape(4, 11)
        with torch.no_grad():
            found, expected = run(*views(mine)), of_neighbours(*views(theirs))
        assert torch.equal(mine.cpu(), theirs), name
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True)), name
    assert "the fault lies in ktir" not in caplog.text


def test_what_the_tracing_of_pytorch_refuses_is_not_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    weight = torch.nn.Parameter(torch.ones(3, 64))
    compiled(lambda w: w[0].mul_(2), weight)
    assert "PyTorch's own tracing refuses the graph" in caplog.text
    assert "the fault lies in ktir" not in caplog.text
    assert torch.equal(weight[:2, 0], torch.tensor([2.0, 1.0]))


def test_what_pytorch_says_of_its_tracing_is_at_the_line_without_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.arange(66.0)
    assert compiled(lambda x, at: x.roll(1)[at], x, torch.tensor(5)) == 4
    assert re.search(r"test_writes.py:\d+:1: warning: \S+: the value of a tensor decides about the graph", caplog.text)
    assert "tlparse" not in caplog.text


def test_an_error_without_words_names_the_operators() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    assert "NotImplementedError: no words, for a graph with relu, add" in str(in_words(NotImplementedError(), graph))


def test_a_mode_is_refused_with_what_there_is_instead() -> None:
    with pytest.raises(Exception, match=r"mode 'reduce-overhead' is .* leave it out, or .*: fallback, engine"):
        torch.compile(lambda x: x + 1, backend="spyre", mode="reduce-overhead")(torch.ones(3))


def test_what_has_no_form_on_the_chip_is_named_as_the_user_wrote_it() -> None:
    said = r"test_writes.py:\d+:1: error: 'prims.convert_element_type' of uint8 \[9\] to float64 \[9\] has no form on the chip: "
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=said) as caught:
        torch.compile(lambda x: x.to(torch.float64), backend="spyre", options={"fallback": "error"})(torch.arange(9, dtype=torch.uint8))
    assert 'without fallback="error" it runs on the KTIR executor instead' in str(caught.value)


def test_results_of_selections_have_the_strides_of_eager(on_chip: None) -> None:
    def select(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*x.kthvalue(2, 1), *x.kthvalue(3, 1, keepdim=True), *x.topk(3, 1), *x.kthvalue(2, 0))

    x = torch.randn(3, 65, 5).half()
    assert [t.stride() for t in compiled(select, x)] == [t.stride() for t in select(x)]
