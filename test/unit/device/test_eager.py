"""Operators on tensors of the device, on the chip. The oracle is torch on the host; `test_fallbacks.py` has what is no program."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from eager_calls import close, half, hearing, there
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

from ktir.device.operators import eager, known, trial
from ktir.runtime import metrics


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[str]]:
    with hearing() as found:
        yield found


OPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "add": (torch.add, (half(3, 70), half(3, 70))),
    "add with a factor": (lambda x, y: torch.add(x, y, alpha=2), (half(3, 70), half(70))),
    "add a number": (lambda x: x + 2.5, (half(3, 70),)),
    "a number minus": (lambda x: 1 - x, (half(3, 70),)),
    "transposed": (torch.mul, (half(70, 3).t(), half(3, 70))),
    "types are promoted": (torch.mul, (half(3, 70), torch.arange(70))),
    "a number of no dims": (torch.mul, (torch.tensor(3, dtype=torch.float16), half(5))),
    "mm": (torch.mm, (half(16, 64), half(64, 32))),
    "linear": (F.linear, (half(5, 64), half(32, 64), half(32))),
    "bmm": (torch.bmm, (half(2, 16, 64), half(2, 64, 16))),
    "softmax": (lambda x: torch.softmax(x, -1), (half(5, 64),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, [64], w, b), (half(5, 64), half(64), half(64))),
    "statistics": (lambda x: torch.native_layer_norm(x, [64], None, None, 1e-5), (half(5, 64),)),
    "place of the largest": (lambda x: x.t().argmax(), (half(5, 64),)),
    "division by a number": (lambda x: x / 3, (half(5, 64),)),
    "gelu": (F.gelu, (half(5, 64),)),
    "sum": (lambda x: x.sum(-1), (half(5, 64),)),
    "mean": (lambda x: x.float().mean(), (half(5, 64),)),
    "max": (lambda x: x.max(1), (half(5, 64),)),
    "cat": (lambda *xs: torch.cat(xs, 1), (half(5, 64), half(5, 3))),
    "stack": (lambda *xs: torch.stack(xs), (half(5, 64), half(5, 64))),
    "embedding": (F.embedding, (torch.tensor([[2, 0], [1, 4]]), half(5, 64))),
    "index": (lambda x, i: x[i], (half(5, 64), torch.tensor([2, 0, 2]))),
    "where": (lambda x, y: torch.where(x > y, x, y), (half(5, 64), half(64))),
    "compare": (torch.eq, (torch.arange(6), torch.tensor([0, 2, 2, 3, 5, 5]))),
    "integers": (lambda x: x * 3 - 1, (torch.arange(100),)),
    "not": (torch.logical_not, (torch.tensor([True, False, True]),)),
    "float32": (torch.add, (torch.ones(8, 8), torch.full((8, 8), 0.1))),
    "cumsum": (lambda x: x.cumsum(0), (torch.arange(70),)),
    "scatter with a constant of the graph": (
        lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
        (half(5, 4), torch.tensor([[1, 0, 4, 4]]), half(1, 4)),
    ),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (half(5, 64),)),
    "pad": (lambda x: F.pad(x, (1, 2)), (half(5, 64),)),
    "conv": (F.conv2d, (half(1, 3, 8, 8), half(4, 3, 3, 3), half(4))),
    "attention": (F.scaled_dot_product_attention, (half(1, 2, 16, 64), half(1, 2, 16, 64), half(1, 2, 16, 64))),
    "bilinear": (F.bilinear, (torch.ones(5, 4) / 3, torch.arange(15.0).view(5, 3), torch.arange(24.0).view(2, 4, 3), torch.ones(2))),
    "upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (half(1, 2, 4, 5),)),
    "cubic upsampling": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (half(1, 2, 4, 5),)),
    "upsampling of volumes": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (half(1, 2, 2, 3, 4),)),
    "selection from a number": (lambda x, i: x.index_select(0, i), (torch.tensor(3.5), torch.tensor([0]))),
    "sum with a number": (lambda x, i, y: x.index_add(0, i, y), (torch.tensor(3.5), torch.tensor([0]), torch.tensor(2.0))),
    "copy to a number": (lambda x, i, y: x.index_copy(0, i, y), (torch.tensor(3.5), torch.tensor([0]), torch.tensor([2.0]))),
    "another order": (lambda x: torch.permute_copy(x, (1, 0)), (half(5, 64),)),
    "wider": (lambda x: x.float(), (half(70, 3).t(),)),
    "bool": (lambda x: x.bool(), (half(5, 64).round(),)),
    "integers of a float": (lambda x: x.to(torch.int32), (torch.tensor([2.7, -3.5, 0.0, -0.0, 1e6, 3e9]),)),
    "bytes": (lambda x: x.to(torch.uint8), (torch.tensor([2.7, 255.0, 65520.0]),)),
}


@pytest.mark.parametrize("name", OPS)
def test_on_the_chip(name: str, on_chip: None) -> None:
    function, args = OPS[name]
    with torch.no_grad():
        close(function(*there(args)), function(*args))


def _converted(args: tuple[Any, ...], old: torch.dtype, new: torch.dtype) -> tuple[Any, ...]:
    return tuple(x.to(new) if isinstance(x, torch.Tensor) and x.dtype == old else x for x in args)


_OF_HALVES = [name for name, (_, args) in OPS.items() if any(isinstance(x, torch.Tensor) and x.dtype == torch.float16 for x in args)]
_QUICK = ("linear", "softmax", "statistics", "max", "cat", "index", "scatter with a constant of the graph", "attention")


@pytest.mark.parametrize("name", [n if n in _QUICK else pytest.param(n, marks=pytest.mark.long) for n in _OF_HALVES])
def test_bfloat16_on_the_chip(name: str, on_chip: None) -> None:
    """Off the result in float64 by one rounding of it, and by 1.5 times the largest error of eager bfloat16; integers are equal."""
    function, args = OPS[name]
    args = _converted(args, torch.float16, torch.bfloat16)
    wide = _converted(args, torch.bfloat16, torch.float64)
    with torch.no_grad():
        results = [function(*x) for x in (there(args), args, wide)]
    for ours, theirs, exact in zip(*map(pytree.tree_leaves, results), strict=True):
        assert (ours.device.type, ours.dtype, ours.stride()) == ("spyre", theirs.dtype, theirs.stride())
        if not theirs.is_floating_point():
            assert torch.equal(ours.cpu(), theirs)
            continue
        error, allowed = (ours.cpu().double() - exact).abs(), 1.5 * (theirs.double() - exact).abs().max()
        assert (error <= allowed + 2.0**-8 * exact.abs()).all()


def test_a_call_that_is_refused_is_none_of_other_sizes(monkeypatch: pytest.MonkeyPatch, on_chip: None) -> None:
    monkeypatch.setattr(trial, "_taken", {})
    x, y = half(3, 65).to("spyre"), half(65, 9).to("spyre")
    for k in range(1, 8):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            _ = x[:, k:] @ y
        close(x[:, k:] @ y[k:], x[:, k:].cpu() @ y[k:].cpu())


def test_a_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    original = eager._compile
    monkeypatch.setattr(eager, "_compile", lambda *a: compiled.append(a) or original(*a))
    monkeypatch.setattr(eager, "_programs", eager.OrderedDict())
    x = half(3, 11).to("spyre")
    numbers = (2, 2, 2.0, 0.0, -0.0, True)
    got = [(x * n).cpu() for n in numbers]
    assert len(compiled) == 5, "an equal number of another type or sign is another program"
    for n, result in zip(numbers, got, strict=True):
        torch.testing.assert_close(result, x.cpu() * n)
        assert torch.equal(result.signbit(), (x.cpu() * n).signbit())
    monkeypatch.setattr(eager, "_MOST", 3)
    _ = x * 5
    assert len(eager._programs) == 3


def test_numbers_that_are_asked_for_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more kinds of operands than are kept, those go that nobody has asked for the longest time."""
    monkeypatch.setattr(eager, "_constants", eager.OrderedDict())
    monkeypatch.setattr(eager, "_programs", eager.OrderedDict())
    monkeypatch.setattr(eager, "_MOST", 2)
    first, second, third = (torch.arange(n, device="spyre") for n in (3, 4, 5))
    for x, number in ((first, 2), (second, 2), (first, 3), (third, 2)):
        x.bitwise_and(number)
    assert [len(found) for found in eager._constants.values()] == [2, 1]


def test_results_are_new_to_autograd(on_chip: None) -> None:
    """Version 0, as on the host, however often a graph has been called; what is written in place counts."""
    x = half(4, 4).to("spyre")
    computed = [
        x + 1,
        x @ x,
        x.sum(),
        torch.cat([x, x]),
        x.sort()[0],
        x.float(),
        F.layer_norm(x, (4,)),
        x[torch.tensor([1], device="spyre")],
    ]
    assert {t._version for t in computed} == {0}
    compiled = torch.compile(lambda x: (x * 2 + 1, x.t(), x.sum(0)))
    written = torch.compile(lambda x: x.add_(1))
    y = computed[0]
    for _ in range(6):
        z = compiled(y)
        assert (z[0]._version, z[2]._version) == (0, 0)
        before = y._version
        written(y)
        assert y._version > before


def test_many_tensors_are_joined_in_groups(monkeypatch: pytest.MonkeyPatch, on_chip: None) -> None:
    compiled: list[Any] = []
    original = eager._compile
    monkeypatch.setattr(eager, "_compile", lambda *a: compiled.append(a) or original(*a))
    monkeypatch.setattr(eager, "_MOST_JOINED", 4)
    parts = [half(2, 3) + k for k in range(14)]
    close(torch.stack(there(parts), -1), torch.stack(parts, -1))
    assert len(compiled) == 3, "of four, of the last two, and of the groups"
    close(torch.cat(there(parts), out=half(0).to("spyre")), torch.cat(parts))


def test_another_process_finds_programs_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    x = half(5, 13).to("spyre")
    with fresh_cache():
        for found in (0, 1):
            monkeypatch.setattr(eager, "_programs", eager.OrderedDict())
            known.forget()
            counters.clear()
            close(x * 2.5 + x, x.cpu() * 2.5 + x.cpu())
            assert counters["inductor"]["fxgraph_cache_hit"] == 2 * found


WRITERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "number": lambda x: x.add_(1),
    "tensor": lambda x: x.mul_(x.flip(0)),
    "part": lambda x: x[1:, ::2].sub_(1),
    "transposed": lambda x: x.t().add_(1),
    "relu_": lambda x: x.relu_(),
    "operator": lambda x: x.__iadd__(x),
    "clamp_": lambda x: x.clamp_(max=0.5),
    "of another type": lambda x: x.copy_(torch.arange(64).to(x.device)),
    "masked": lambda x: x.masked_fill_(x > 0, 0.25),
    "out": lambda x: torch.add(x, 1, out=x),
    "out of another shape": lambda x: torch.add(x, 1, out=x.new_empty(0)),
    "out of two": lambda x: torch.max(x, 1, out=(x.new_empty(0), x.new_empty(0, dtype=torch.int64))),
}

NUMBERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "remainder": lambda x: x.remainder_(3),
    "fmod": lambda x: x.fmod_(3),
    "and": lambda x: x.__iand__(3),
    "or": lambda x: x.__ior__(3),
    "xor": lambda x: x.bitwise_xor_(3),
    "left": lambda x: x.__ilshift__(3),
    "right": lambda x: x.bitwise_right_shift_(1),
    "out": lambda x: torch.remainder(x, 3, out=x),
    "out of and": lambda x: torch.bitwise_and(x, 6, out=torch.empty_like(x)),
}
"""Operators that torch calls with a tensor that it makes of the number."""


@pytest.mark.parametrize("name", NUMBERS)
def test_written_in_place_with_a_number(name: str, on_chip: None) -> None:
    host, ours = torch.arange(-9, 9), torch.arange(-9, 9).to("spyre")
    expected, got = NUMBERS[name](host), NUMBERS[name](ours)
    assert got.tolist() == expected.tolist()
    assert ours.tolist() == host.tolist()


def test_copysign_and_xlogy_with_a_number() -> None:
    for write in (lambda x: x.copysign_(-1.0), lambda x: x.xlogy_(2.0), lambda x: torch.copysign(x, -0.0, out=x)):
        host, ours = half(4, 9), half(4, 9).to("spyre")
        close(write(ours), write(host))
        close(ours, host)


@pytest.mark.parametrize("name", WRITERS)
def test_written_in_place(name: str, on_chip: None) -> None:
    host, ours = half(4, 64), half(4, 64).to("spyre")
    expected, got = WRITERS[name](host), WRITERS[name](ours)
    close(got, expected)
    close(ours, host)


@pytest.mark.parametrize("name", ["_native_batch_norm_legit", "_batch_norm_with_update"])
def test_results_beside_what_is_written(name: str, on_chip: None) -> None:
    def norm(x: torch.Tensor, *rest: torch.Tensor) -> Any:
        return getattr(torch.ops.aten, name).default(x, *rest, *([True] if "legit" in name else []), 0.5, 1e-5)

    host = [half(8, 64).float(), torch.ones(64), torch.zeros(64), torch.arange(1.0, 65), torch.arange(1.0, 65)]
    ours = there(host)
    close(norm(*ours), norm(*host))
    close(ours, host)


def test_zeros_that_the_host_refuses_are_tried_as_ones(on_chip: None) -> None:
    x = torch.arange(12)
    close(x.to("spyre") // torch.tensor([3, 5], device="spyre").repeat(6), x // torch.tensor([3, 5]).repeat(6))


@pytest.mark.turn
def test_layers_of_transformers(on_chip: None) -> None:
    """By operators of the device, also where the module asks for the layer as a whole; padding stays."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    before = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval()
    x, padding = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        wanted = [before(x), layer(x, causal), layer(x, src_key_padding_mask=padding), *layer.self_attn(x, x, x)]
        ours, there = layer.to("spyre"), x.to("spyre")
        found = [before.to("spyre")(there), ours(there, causal.to("spyre")), ours(there, src_key_padding_mask=padding.to("spyre"))]
        for mine, theirs in zip([*found, *ours.self_attn(there, there, there)], wanted, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-5, atol=1e-5)
        encoder = nn.TransformerEncoder(ours, 1)
        padded = encoder(there, src_key_padding_mask=padding.to("spyre"))
        torch.testing.assert_close(padded.cpu()[~padding], wanted[2][~padding], rtol=1e-5, atol=1e-5)


def test_batch_norm_without_weights(on_chip: None) -> None:
    host = [half(8, 64).float(), None, None, torch.arange(1.0, 65), torch.arange(1.0, 65)]
    ours = there(host)
    norm = torch.ops.aten._batch_norm_with_update.default
    close(norm(*ours, 0.5, 1e-5), norm(*host, 0.5, 1e-5))
    close(ours[3:], host[3:])


def test_inside_of_a_default_device(on_chip: None) -> None:
    with torch.device("spyre"):
        x = torch.ones(5, 63, dtype=torch.float16)
        close(x * 3, torch.full((5, 63), 3.0, dtype=torch.float16, device="cpu"))


@pytest.mark.turn
def test_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(6, 8)
    ours = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to("spyre")
    ours.load_state_dict(model.state_dict())
    with metrics.counted() as launches:
        for each, data in ((model, x), (ours, x.to("spyre"))):
            optimizer = torch.optim.SGD(each.parameters(), lr=0.1, foreach=False)
            each(data).square().mean().backward()
            optimizer.step()
    assert launches().chip
    for theirs, mine in zip(model.parameters(), ours.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
        torch.testing.assert_close(mine.detach().cpu(), theirs.detach())


def test_gradients_through_a_batch_norm() -> None:
    """It writes its statistics, of which gradients must not hear."""
    model, ours = nn.BatchNorm1d(64), nn.BatchNorm1d(64).to("spyre")
    x = half(8, 64).float()
    for each, data in ((model, x.clone()), (ours, x.to("spyre"))):
        each(data.requires_grad_()).square().sum().backward()
    for theirs, mine in ((model.weight.grad, ours.weight.grad), (model.running_var, ours.running_var)):
        assert mine is not None
        torch.testing.assert_close(mine.cpu(), theirs)


def test_a_sign_that_is_noted_apart_in_compiled_calls() -> None:
    x = half(4, 9)
    ours = x.to("spyre")
    view = torch.ops.aten._neg_view.default(ours)
    torch._dynamo.reset()
    run = torch.compile(lambda x: x * 2 + 1)
    with torch.no_grad():
        close(run(view), 1 - 2 * x)
        for _ in range(5):
            close(run(ours), x * 2 + 1)
        close(run(view), 1 - 2 * x)


def test_a_sign_that_is_noted_apart() -> None:
    """Views with a sign of their own are resolved by copies, which take them as they are."""
    x = half(4, 9)
    view = torch.ops.aten._neg_view.default(x.to("spyre"))
    close(view + 1, 1 - x)
    close(view.clone(), -x)
    close(view, -x)
    view.mul_(2)
    close(view, -2 * x)


def test_elements_are_put_on_the_chip(on_chip: None) -> None:
    cache, key, where = half(1, 2, 8, 4), half(1, 2, 2, 4), torch.tensor([3, -1])
    ours = cache.to("spyre")
    for tensor, k, place in ((cache, key, where), (ours, key.to("spyre"), where.to("spyre"))):
        tensor[:, :, place] = k
        tensor.index_put_((torch.zeros_like(place),), torch.ones_like(k[0, 0, 0]), accumulate=True)
    close(ours, cache)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        ours[:, :, torch.tensor([9]).to("spyre")] = 1.0
