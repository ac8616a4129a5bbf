"""What no generated function does, why, and how one would see that it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from campaign.function_call import apply
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

Seen = Callable[[str, Sequence[Tensor], Tensor], bool]
"""(text of a call, its operands, its result) -> whether it does what is avoided."""


@dataclass(frozen=True)
class Avoided:
    """`example`: a call that does it."""

    why: str
    seen: Seen
    example: Callable[[], tuple[str, Sequence[Tensor], Tensor]]


def _call(text: str, *operands: Tensor) -> Callable[[], tuple[str, Sequence[Tensor], Tensor]]:
    return lambda: (text, operands, apply(text, operands))


def _whole(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def _beyond(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    if not re.search(r"\.to\(|dtype=", text) or not _whole(result):
        return False
    info = torch.iinfo(result.dtype)
    floats = [x.double() for x in operands if x.is_floating_point()]
    return any(not bool((torch.isfinite(x) & (x >= info.min) & (x <= info.max)).all()) for x in floats)


def _shift(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    return bool(re.search("<<|>>", text)) and not bool(((operands[1] >= 0) & (operands[1] < torch.iinfo(result.dtype).bits)).all())


def _divides(text: str, result: Tensor) -> bool:
    return _whole(result) and bool(re.search(r"//|%|fmod|remainder|floor_divide|rounding_mode", text))


def _smallest(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    if not _divides(text, result) or result.dtype == torch.uint8:
        return False
    return bool(((operands[0] == torch.iinfo(result.dtype).min) & (operands[1] == -1)).any())


def _by_zero(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    return _divides(text, result) and bool((operands[1] == 0).any())


def _equal(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    """Of a stable sort places are defined, of argmax and argmin any place of an extreme is taken as right."""
    found = re.search(r"torch\.(?:(?:max|min)\(\{0\}, |topk\(.*dim=)(-?\d+).*\.indices", text)
    if found is None:
        return False
    x, dim = operands[0], int(found[1])
    return bool((x != x).any()) or (x.dim() > 0 and bool((x.double().sort(dim).values.diff(dim=dim) == 0).any()))


def _one_place(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    return bool(re.search("index_copy|index_put", text)) and len(operands[1].unique()) < operands[1].numel()


def _outside(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    """Negative indices count too: they mean something in some operators only."""
    if "embedding" in text:
        index, size = operands[0], operands[1].shape[0]
    elif found := re.search(r"(?:gather|index_select|index_copy|index_add|scatter_add)\(\{0\}, (-?\d+), \{1\}", text):
        index, size = operands[1], operands[0].shape[int(found[1])]
    elif found := re.search(r"\{0\}\[((?::, )*)\{1\}\]|index_put\(\{0\}", text):
        index, size = operands[1], operands[0].shape[(found[1] or "").count(":")]
    else:
        return False
    return bool(((index < 0) | (index >= size)).any())


def _random(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    """Whether PyTorch's generator moves."""
    with torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        apply(text, [x.clone() for x in operands])
        return not torch.equal(before, torch.random.get_rng_state())


def _depends_on_data(text: str, operands: Sequence[Tensor], result: Tensor) -> bool:
    """Whether the shape of the result cannot be told from those of the operands."""
    with FakeTensorMode() as mode:
        try:
            apply(text, [mode.from_tensor(x) for x in operands])
        except DynamicOutputShapeException:
            return True
    return False


_SMALL = torch.arange(4)
_UNDEFINED = "undefined in C++"
_OPEN = "PyTorch leaves open which one"

AVOIDED = {
    "conversions of floats to integers out of range": Avoided(
        f"{_UNDEFINED}, so eager's value depends on the CPU", _beyond, _call("{0}.to(torch.int8)", torch.tensor([1.0, 128.0]))
    ),
    "shifts by negative numbers or by the width": Avoided(_UNDEFINED, _shift, _call("{0} << {1}", _SMALL, torch.tensor(64))),
    "the quotient of the smallest integer by -1": Avoided(
        _UNDEFINED,
        _smallest,
        lambda: ("{0} // {1}", [torch.tensor([-128], dtype=torch.int8), torch.tensor(-1)], torch.zeros(1).to(torch.int8)),
    ),
    "integer division by zero": Avoided("eager raises an error", _by_zero, lambda: ("{0} % {1}", [_SMALL, _SMALL], _SMALL)),
    "places of equal extremes and of equal top elements": Avoided(
        f"{_OPEN} it gives", _equal, _call("torch.topk({0}, 2, dim=0, largest=True).indices", torch.ones(4))
    ),
    "scatters of several values to one place": Avoided(
        f"{_OPEN} wins", _one_place, _call("torch.index_put({0}, ({1},), {2})", _SMALL, torch.tensor([1, 1]), torch.tensor([2, 3]))
    ),
    "indices out of range": Avoided(
        "eager raises an error", _outside, lambda: ("torch.gather({0}, 0, {1})", [_SMALL, torch.tensor([4])], _SMALL[:1])
    ),
    "random numbers": Avoided(
        "they come from PyTorch's generator and have no oracle in a wider type", _random, _call("torch.rand_like({0})", torch.ones(3))
    ),
    "complex numbers": Avoided(
        "the compiler leaves them to PyTorch", lambda _, __, result: result.is_complex(), _call("torch.complex({0}, {0})", torch.ones(3))
    ),
    "gradients": Avoided(
        "there is no backward pass", lambda _, __, result: result.requires_grad, lambda: ("{0}", [], torch.ones(3, requires_grad=True))
    ),
    "shapes that depend on data": Avoided("they are left to PyTorch", _depends_on_data, _call("torch.nonzero({0})", _SMALL)),
}
"""What -> why no program does it, and what sees it."""
