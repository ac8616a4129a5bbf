"""Tensors that share a storage which grows, or of which a program reads or writes a part. The host is the oracle, bit for bit."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest
import torch

TYPES = [torch.int64, torch.int32, torch.int8, torch.float32, torch.float16]


def seen(device: str, seed: int) -> list[list[object]]:
    """A walk of views, new sizes and writes, and what each tensor then has and how many bytes its storage."""
    rng = random.Random(seed)
    tensors = [torch.arange(rng.randint(0, 9)).to(rng.choice(TYPES)).to(device)]
    found = list[list[object]]()
    for _ in range(8):
        t, way = rng.choice(tensors), rng.randrange(5)
        if way == 0 and t.numel() > 1:
            first = rng.randrange(t.numel())
            tensors.append(t[first : rng.randint(first, t.numel())])
        elif way == 1:
            size, known = rng.randint(0, 40), t.untyped_storage().nbytes() // t.element_size() - int(t.storage_offset())
            t.resize_(size)
            if size > known:
                t[max(known, 0) :].fill_(7)
        elif way == 2:
            t.fill_(rng.randint(0, 100))
        elif way == 3:
            t.add_(1)
        elif t.element_size() > 1 and int(t.storage_offset()) * t.element_size() % 2 == 0:
            tensors.append(t.view(torch.int16))
        found.append([*(x.tolist() for x in tensors), *(x.untyped_storage().nbytes() for x in tensors)])
    return found


@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_walks(seed: int) -> None:
    for number in range(seed, seed + 10):
        assert str(seen("spyre", number)) == str(seen("cpu", number)), number


def test_a_storage_grows_for_all_that_share_it() -> None:
    x = torch.arange(6, device="spyre")
    y = x[2:5]
    x.resize_(9)
    y[0] = 99
    assert x[:6].tolist() == [0, 1, 99, 3, 4, 5]
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_number_in_a_longer_tensor_is_a_part_of_it(dtype: torch.dtype) -> None:
    """A prepared program took an integer by itself, and then the first one of five for all there is."""
    alone = torch.tensor([3]).to(dtype).to("spyre")
    for _ in range(3):
        alone.add_(1)
    several = torch.arange(5).to(dtype).to("spyre")
    several[:1].add_(1)
    assert several.tolist() == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "write", [lambda t: t.add_(1), lambda t: t.relu_(), lambda t: t.masked_fill_(t > 0, 1), lambda t: torch.neg(t, out=t)]
)
def test_a_view_without_elements_stays_one(write: object) -> None:
    assert callable(write)
    whole = torch.arange(6.0, device="spyre")
    part = whole[2:2]
    write(part)
    assert part.storage_offset() == 2
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_a_result_that_the_host_cannot_hold() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"the host has no memory for 'aten.arange.+'"):
        torch.arange(1 << 42, device="spyre")


SET: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "inside": (1, (3,), (1,)),
    "beyond the end": (2, (5,), (1,)),
    "far beyond it": (100, (2, 2), (3, 1)),
    "of no elements": (100, (0,), (1,)),
    "before the beginning": (-1, (2,), (1,)),
    "fewer sizes than strides": (0, (2,), (1, 1)),
    "a negative size": (0, (-2,), (1,)),
}


@pytest.mark.parametrize("case", SET)
def test_a_place_in_a_storage(case: str) -> None:
    """The host's storage grows, or it says what is wrong."""
    found: list[object] = []
    for device in ("cpu", "spyre"):
        whole, new = torch.arange(4.0).to(device), torch.empty(0, device=device)
        try:
            new.set_(whole.untyped_storage(), *SET[case])
            found.append((new.shape, new.stride(), new.storage_offset(), whole.untyped_storage().nbytes(), whole.tolist()))
        except RuntimeError as error:
            found.append(str(error))
    assert found[0] == found[1]


def _part(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and every other column of its last rows."""
    whole = torch.full((6, 10), 7.0).to(device)
    return whole, whole[1:, ::2]


@pytest.mark.parametrize("memory_format", [None, torch.contiguous_format])
def test_a_tensor_that_has_the_size_stays_as_it_lies(memory_format: torch.memory_format | None) -> None:
    """It was made contiguous, whatever was asked for."""
    found = []
    for device in ("cpu", "spyre"):
        _, part = _part(device)
        part.resize_(5, 5, memory_format=memory_format)
        found.append((part.stride(), part.storage_offset(), part.tolist()))
    assert found[0] == found[1]


WRITTEN: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "softmax": lambda x, out: torch.softmax(x, 1, out=out),
    "log_softmax": lambda x, out: torch.log_softmax(x, 1, out=out),
    "full": lambda x, out: torch.full((5, 5), 2.0, out=out),
    "zeros": lambda x, out: torch.zeros(5, 5, out=out),
    "ones": lambda x, out: torch.ones(5, 5, out=out),
    "rand": lambda x, out: torch.rand(5, 5, out=out).zero_(),
    "eye": lambda x, out: torch.eye(5, out=out),
    "add": lambda x, out: torch.add(x, x, out=out),
    "mm": lambda x, out: torch.mm(x, x, out=out),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_results_go_to_a_part_of_a_tensor(name: str) -> None:
    """PyTorch's kernels give `out=` the size that it has, and went on with a tensor that lay elsewhere."""
    found = []
    for device in ("cpu", "spyre"):
        whole, part = _part(device)
        WRITTEN[name](torch.arange(25.0).view(5, 5).to(device), part)
        found.append(whole.cpu())
    torch.testing.assert_close(found[1], found[0])


WARNED: dict[str, Callable[[torch.Tensor, tuple[torch.Tensor, torch.Tensor]], object]] = {
    "add": lambda x, out: torch.add(x, x, out=out[0]),
    "mm": lambda x, out: torch.mm(x, x, out=out[0]),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out[0]),
    "max": lambda x, out: torch.max(x, 1, out=out),
    "erfinv": lambda x, out: torch.erfinv(x, out=out[0]),  # by the host
    "logsigmoid": lambda x, out: torch.ops.aten.log_sigmoid.out(x, out=out[0]),  # of which PyTorch does not warn
}


@pytest.mark.parametrize("name", WARNED)
@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_each_call_warns_of_a_size_that_is_wrong(name: str) -> None:
    """It was said at the first call, and twice where the host computes."""
    found: list[list[list[str]]] = []
    for device in ("cpu", "spyre"):
        calls = list[list[str]]()
        for size in (7, 7, 0, 3):
            out = torch.ones(size, device=device), torch.ones(size, dtype=torch.int64, device=device)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                WARNED[name](torch.arange(25.0).view(5, 5).to(device) / 25, out)
            calls.append([str(w.message).partition(" (Triggered")[0] for w in said if "resized" in str(w.message)])
        found.append(calls)
    assert found[1] == found[0]
