"""What PyTorch refuses on the host is refused on the device: by sizes, numbers, types, shared memory, and where nothing is computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def none(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


Call = Callable[[Callable[[torch.Tensor], torch.Tensor]], Any]
REFUSED: dict[str, Call] = {
    "gather of an empty dim": lambda on: on(none(3, 0)).gather(1, on(torch.tensor([[0]]))),
    "rows without elements": lambda on: on(none(3, 0)).index_select(0, on(torch.tensor([5]))),
    "embedding without elements": lambda on: torch.nn.functional.embedding(on(torch.tensor([-1])), on(none(3, 0))),
    "take from nothing": lambda on: on(none(0)).take(on(torch.tensor([0]))),
    "loss of nothing": lambda on: torch.nn.functional.nll_loss(on(none(0)), on(torch.tensor([], dtype=torch.int64))),
    "a number beyond the type": lambda on: on(none(3).half()).clamp(True, 1e9),
    "matmul of bool": lambda on: on(none(3, 4).bool()) @ on(none(4, 3).bool()),
    "softmax of integers": lambda on: on(none(3, 4).char()).softmax(-1),
    "result of another type": lambda on: torch.sign(on(none(3)), out=on(none(3).int())),
    "dim of a result": lambda on: torch.amax(on(none(3)), 1, out=on(none(1))),
    "joined in place": lambda on: (lambda x: torch.cat([x, x], out=x))(on(none(3))),
    "nothing joined in place": lambda on: (lambda x: torch.cat([x, x], out=x))(on(none(2, 0))),
    "chosen in place": lambda on: (lambda x: torch.index_select(x, 0, on(torch.tensor([0])), out=x))(on(none(3))),
    "own part": lambda on: (lambda x: x[1:].add_(x[:-1]))(on(none(3))),
    "a number with shared memory": lambda on: (lambda x: torch.add(x[1:], 3, out=x[:-1]))(on(none(4))),  # type: ignore[call-overload]
    "a negative index of a bag": lambda on: torch.nn.functional.embedding_bag(
        on(torch.tensor([0, -1])), on(none(4, 64)), on(torch.tensor([0]))
    ),
    "a negative place of a pool": lambda on: torch.nn.functional.max_unpool2d(
        on(none(1, 2, 2, 2)), on(torch.tensor([[[[0, 1], [2, 3]], [[0, 1], [-1, 3]]]])), (2, 2)
    ),
    "a row beside the only one": lambda on: on(none(1, 4)).index_select(0, on(torch.tensor([0, 3]))),
    "a row beside copies of one": lambda on: on(none(1, 4)).expand(3, 4)[on(torch.tensor([0, -4]))],
    "a place beside the only one": lambda on: on(none(1, 4)).scatter(0, on(torch.full((1, 4), 2)), on(none(1, 4))),
    "an element beside the only one": lambda on: on(none(1)).take(on(torch.tensor([4]))),
    "a class beside the only one": lambda on: torch.nn.functional.nll_loss(on(none(3, 1)), on(torch.tensor([0, 1, 0]))),
    "boundaries without dims": lambda on: torch.bucketize(on(none(3)), on(torch.tensor(1.0))),
    "own transpose": lambda on: (lambda x: x.add_(x.t()))(on(none(3, 3))),
    "own transpose of another type": lambda on: (lambda x: x.add_(x.t()))(on(none(3, 3).double())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_host(name: str) -> None:
    with pytest.raises(Exception) as wanted:  # noqa: PT011
        REFUSED[name](lambda t: t)
    with pytest.raises(wanted.type) as found:
        REFUSED[name](lambda t: t.to("spyre"))
    assert found.type is wanted.type


def test_taken_before_with_other_numbers() -> None:
    """What the host has taken once says nothing of other sizes and numbers."""
    x = none(4).half().to("spyre")
    assert x.clamp(max=3).tolist() == [1.0] * 4
    with pytest.raises(RuntimeError, match="without overflow"):
        x.clamp(max=1e9)
    assert (none(0, 4).bool().to("spyre").T @ none(0, 4).bool().to("spyre")).shape == (4, 4)
    with pytest.raises(NotImplementedError):
        _ = none(3, 4).bool().to("spyre").T @ none(3, 4).bool().to("spyre")


def test_written_where_it_is_read() -> None:
    """A result that takes the place of an operand, on the chip and on the host."""
    for dtype in (torch.float32, torch.float64):
        x = torch.arange(9, dtype=dtype).reshape(3, 3)
        ours = x.to("spyre")
        torch.add(ours, ours, out=ours)
        torch.cumsum(ours, 0, out=ours)
        assert torch.equal(ours.cpu(), (x + x).cumsum(0))


def test_a_number_goes_with_a_result_of_another_type() -> None:
    for x in (torch.arange(3), torch.arange(3).double(), torch.arange(3).bfloat16()):
        out = torch.zeros(3, dtype=torch.float32 if x.is_floating_point() else torch.int32)
        ours = out.to("spyre")
        torch.add(x.to("spyre"), 3, out=ours)  # type: ignore[call-overload]
        assert torch.equal(ours.cpu(), torch.add(x, 3, out=out))  # type: ignore[call-overload]


def test_an_index_of_the_host_without_dims(on_chip: None) -> None:
    x = none(4).to("spyre")
    assert x.index_put((torch.tensor(1),), torch.tensor(5.0).to("spyre")).tolist() == [1.0, 5.0, 1.0, 1.0]
    x.index_put_((torch.tensor(2),), torch.tensor(5.0))
    assert x.tolist() == [1.0, 1.0, 5.0, 1.0]


def test_a_number_beyond_64_bits(recwarn: pytest.WarningsRecorder) -> None:
    x = torch.tensor([1, 2])
    warnings.simplefilter("always")
    assert torch.equal(x.to("spyre").sub_(2**63, alpha=2).cpu(), x.sub_(2**63, alpha=2))
    assert not [w for w in recwarn if "the fault lies in ktir" in str(w.message)]


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences(batch_first: bool) -> None:
    """How long they are, and how many rows each step has, stays on the host."""
    lengths, x = torch.tensor([2, 3]), torch.randn(2, 3, 4)
    found = []
    for device in ("cpu", "spyre"):
        given = (x if batch_first else x.transpose(0, 1)).clone().to(device).requires_grad_()
        packed = torch.nn.utils.rnn.pack_padded_sequence(given, lengths, batch_first=batch_first, enforce_sorted=False)
        padded, again = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=batch_first)
        (padded * 2).sum().backward()
        assert torch.equal(again, lengths)
        assert given.grad is not None
        found.append((padded.detach().cpu(), given.grad.cpu()))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.turn
def test_boundaries_in_no_order() -> None:
    x = torch.tensor([torch.nan, 0.0, 1.0, 2.0, torch.inf, -torch.inf])
    for boundaries in (torch.tensor([1.0, 2.0, torch.nan]), torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 2.0])):
        b, y = boundaries.to("spyre"), x.to("spyre")
        for right in (False, True):
            assert torch.equal(torch.bucketize(y, b, right=right).cpu(), torch.bucketize(x, boundaries, right=right))
            got = torch.searchsorted(b, y, right=right, sorter=b.argsort())
            assert torch.equal(got.cpu(), torch.searchsorted(boundaries, x, right=right, sorter=boundaries.argsort()))


@pytest.mark.turn
def test_members_beside_nan(on_chip: None) -> None:
    nan, few, many = torch.full((3,), torch.nan), torch.tensor([1.0, torch.nan, torch.inf]), torch.arange(64.0)
    many[::5] = torch.nan
    for x, tests in ((few, few), (few, nan), (many, many), (many.nan_to_num(7).short(), many), (few, many.half()), (many, few)):
        for unique, invert in ((False, False), (False, True), (x is tests is few, False)):
            found = torch.isin(x.to("spyre"), tests.to("spyre"), assume_unique=unique, invert=invert)
            assert torch.equal(found.cpu(), torch.isin(x, tests, assume_unique=unique, invert=invert))


def test_copies_of_numbers() -> None:
    x = none(4).half().to("spyre")
    x.copy_(2.5)  # type: ignore[arg-type]
    x[:2].copy_(True)  # type: ignore[arg-type]
    x[3:].copy_(7)  # type: ignore[arg-type]
    assert x.tolist() == [1.0, 1.0, 2.5, 7.0]


def test_factors_of_types_of_their_own(on_chip: None) -> None:
    x, a = torch.tensor([3, 4]), torch.tensor([120, -3], dtype=torch.int8)
    for value in (2, 300):
        got = torch.addcmul(x.to("spyre"), a.to("spyre"), a.to("spyre"), value=value)
        assert torch.equal(got.cpu(), torch.addcmul(x, a, a, value=value))
    half = none(3).half().to("spyre")
    assert half.sub_(-1, alpha=3).add_(2, alpha=2).tolist() == [8.0] * 3


def test_types_signs_and_places_of_the_host() -> None:
    """What `ldexp` gives of two types, `lgamma` of 1, and `index_fill` at places counted from the end; all by programs."""
    x, fine = torch.tensor([1.0, 2.5, -3.0, 0.0]).half(), torch.tensor([1.0, -2.0, 9.0, 30.0])
    for on in (lambda t: t, lambda t: t.to("spyre")):
        found = torch.ldexp(on(x), on(fine)), torch.ldexp(on(x), on(fine.half()))
        assert [t.dtype for t in found] == [torch.float32, torch.float16]
        assert found[0].tolist() == [2.0, 0.625, -1536.0, 0.0]
        assert found[1].isnan().tolist() == [False, False, False, True]  # 0 times a power that is infinite
        assert not torch.signbit(torch.lgamma(on(x))[:1]).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = torch.zeros(2, 4).to("spyre").index_fill(1, torch.tensor([-1, 0]).to("spyre"), 5.0)
        assert filled.tolist() == [[5.0, 0.0, 0.0, 5.0]] * 2


def test_no_sparse_gradients() -> None:
    rows = torch.nn.Embedding(5, 4, sparse=True).to("spyre")(torch.tensor([1]).to("spyre"))
    with pytest.raises(NotImplementedError, match="holds no sparse tensors; sparse=False"):
        rows.sum().backward()


def test_what_is_not_deterministic_is_refused_where_that_is_asked_for() -> None:
    """Calls that had come before went on."""
    said = []
    for device in ("cpu", "spyre"):
        x = torch.zeros(4, device=device)
        given = torch.tensor([0, 1], device=device), torch.ones(2, device=device)
        for _ in range(3):
            x.put_(*given)
        torch.use_deterministic_algorithms(True)
        try:
            with pytest.raises(RuntimeError) as refused:
                x.put_(*given)
            said.append(str(refused.value))
        finally:
            torch.use_deterministic_algorithms(False)
        assert x.put_(*given).tolist() == [1, 1, 0, 0]
    assert said[0] == said[1]
