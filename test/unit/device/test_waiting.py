"""What programs of a graph only read waits in as few bytes as hold it, and reads, writes and copies are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ktir.arithmetic.carriers import BF16
from ktir.device.tensors.storage import allocation_of
from ktir.runtime import metrics
from ktir.runtime.memory import allocation

Tensor = torch.Tensor


def compiled(f: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """What the chip makes of tensors of the device."""
    torch._dynamo.reset()
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(f, dynamic=False)(*tensors).cpu()
    ran = launches()
    assert ran.chip
    assert not ran.executor
    assert not ran.torch
    return found


def carriers(tensor: Tensor) -> list[np.dtype]:
    """Types of the carriers of a tensor's forms."""
    return [form.carrier.dtype for form in allocation_of(tensor).forms.values()]


@pytest.mark.parametrize(("dtype", "waits"), [(torch.bool, np.uint8), (torch.int8, np.int8), (torch.uint8, np.int16)])
def test_a_mask(dtype: torch.dtype, waits: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_MANY", 1)
    draw = torch.Generator().manual_seed(3)
    mask, y = torch.randint(0, 3, (30, 130), generator=draw).to(dtype), torch.randn(30, 130, generator=draw).half()

    def choose(mask: Tensor, y: Tensor) -> Tensor:
        return torch.where(mask != 0, y, mask.to(y.dtype) + 1)

    there = mask.to("spyre")
    assert (compiled(choose, there, y.to("spyre")) == choose(mask, y)).all()
    assert carriers(there) == [waits]
    assert (there.cpu() == mask).all()


def test_integers_that_are_written_after_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_MANY", 1)
    x = torch.arange(-100, 100).repeat(3, 1).to(torch.int8)
    there = x.to("spyre")
    assert (compiled(lambda x: x * 2, there) == x * 2).all()
    assert carriers(there) == [np.int8]
    assert (compiled(lambda x: x.add_(1), there) == x + 1).all()
    assert (there.cpu() == x + 1).all()


def test_both_operands_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of a matrix are held as 16 bits: those of weights, and those that the array multiplies in pairs."""
    monkeypatch.setattr(allocation, "_MANY", 1)
    draw = torch.Generator().manual_seed(3)
    a, w = (torch.randint(-128, 128, (n, 256), generator=draw).to(torch.int8) for n in (5, 66))
    there = [t.to("spyre") for t in (a, w)]
    assert (compiled(lambda a, w: torch.ops.aten._int_mm(a, w.t()), *there) == a.int() @ w.int().t()).all()
    assert [kind for t in there for kind in carriers(t)] == [np.uint16, np.uint16]
    weights = w.to("spyre")
    exact = a.double() @ w.double().T / 16
    found = compiled(lambda a, w: torch.nn.functional.linear(a, w.half()), (a / 16).half().to("spyre"), weights)
    assert ((found.double() - exact).abs() <= exact.abs() * 2.0**-11 + 2.0**-8).all()
    assert carriers(weights) == [np.uint16]
    assert all((t.cpu() == own).all() for t, own in zip((*there, weights), (a, w, w), strict=True))


@pytest.mark.parametrize(("dtype", "waits"), [(torch.float16, np.dtype(np.float16)), (torch.bfloat16, BF16)])
def test_floats_of_16_bits(dtype: torch.dtype, waits: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, what is computed element by element, and all codes: infinities, NaN and subnormals too."""
    monkeypatch.setattr(allocation, "_MANY", 1)
    draw = torch.Generator().manual_seed(3)
    x, w = (torch.randn(shape, generator=draw).to(dtype) for shape in ((5, 130), (70, 130)))
    codes = torch.arange(1 << 16).to(torch.uint16).view(dtype).reshape(-1, 64)
    there = w.to("spyre")
    found, exact = compiled(torch.nn.functional.linear, x.to("spyre"), there), x.double() @ w.double().T
    assert ((found.double() - exact).abs() <= exact.abs() * torch.finfo(dtype).eps / 2 + 2.0**-16).all()
    assert carriers(there) == [waits]
    assert (there.cpu() == w).all()
    given = codes.to("spyre")
    assert torch.equal(compiled(lambda c: c.float(), given).nan_to_num(7, 8, 9), codes.float().nan_to_num(7, 8, 9))
    assert carriers(given) == [waits]
    assert torch.equal(compiled(lambda c: c.mul_(2), given).nan_to_num(7, 8, 9), (codes * 2).nan_to_num(7, 8, 9))
