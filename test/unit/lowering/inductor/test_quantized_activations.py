"""Products of activations that the program itself quantises: the array multiplies them as pairs of bytes. PyTorch's float64 says what is
right. Scales are powers of two and activations exact where a quotient would be rounded in another way than eager PyTorch rounds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.runtime import executable
from ktir.target import DATASHEET

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SIZES = [(1, 128, 64), (2, 256, 100), (33, 384, 65), (130, 128, 200)]

Function = Callable[..., torch.Tensor]


def whole(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """To int8; the sums are i32."""
    return torch.ops.aten._int_mm((x * 16).round().clamp(-128, 127).to(torch.int8), w.t())


def small(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """To the type of the weights."""
    one = torch.ones((), dtype=torch.float32)
    return torch.ops.aten._scaled_mm((x * 4).to(w.dtype), w.t(), one, one, out_dtype=torch.float32)


def inputs(m: int, k: int, n: int, weights: torch.dtype, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(m + k + n)
    x = torch.randn(m, k, generator=draw).to(dtype) * 3
    if weights == torch.int8:
        return x, torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=draw)
    return x, (torch.randn(n, k, generator=draw) * 5).to(weights)


def launched(f: Callable[..., Any], *given: torch.Tensor) -> Any:
    """What the chip makes of it, in one launch."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*given)
    assert len(launches) == 1
    return got


def program(f: Function, *given: torch.Tensor) -> Machine:
    """The machine of its program."""
    with torch.no_grad():
        text = ktir.capture(f, *given)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET)


def halves(machine: Machine) -> set[str]:
    """What the array multiplies."""
    return {w["half"] for k in machine.program.kernels for words in k.units.values() for w in words if w.op == "mm"}


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("size", SIZES)
def test_integers_are_exact(size: tuple[int, int, int]) -> None:
    x, w = inputs(*size, torch.int8)
    codes = (x.float() * 16).to(x.dtype).float().round().clamp(-128, 127)
    assert torch.equal(launched(whole, x, w).double(), codes.double() @ w.double().t())


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("weights", [E4M3, E5M2])
@pytest.mark.parametrize("size", SIZES)
def test_floats_are_rounded_once_per_block(size: tuple[int, int, int], weights: torch.dtype, dtype: torch.dtype) -> None:
    x, w = inputs(*size, weights, dtype)
    a, b = (x * 4).to(weights).double(), w.double().t()
    got, exact = launched(small, x, w), a @ b
    blocks = size[1] // 128
    assert ((got.double() - exact).abs() <= (2 * blocks + 1) * 2.0**-24 * (a.abs() @ b.abs())).all()
    if blocks == 1:  # one rounding
        assert torch.equal(got, exact.float())


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("rows", [(2, 33), (4, 16), (1, 5, 3)])
def test_activations_of_several_dims(rows: tuple[int, ...]) -> None:
    """Which the product has as one."""
    x, w = inputs(int(np.prod(rows)), 256, 65, torch.int8)

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        q = (x * 16).round().clamp(-128, 127).to(torch.int8)
        return torch.ops.aten._int_mm(q.view(-1, 256), w.t()).view(*rows, 65) * 2

    codes = (x.float() * 16).to(x.dtype).float().round().clamp(-128, 127)
    got = launched(f, x.view(*rows, 256), w)
    assert torch.equal(got.double(), (codes.double() @ w.double().t()).view(*rows, 65) * 2)


def codes(x: torch.Tensor) -> torch.Tensor:
    return (x * 16).round().clamp(-128, 127).to(torch.int8)


SEEN: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "put together along the sum": ((5, 192), lambda x: codes(torch.cat([x[:, 63:], x[:, :127]], 1))),
    "put together behind": ((5, 192), lambda x: torch.cat([codes(x[:, 63:]), codes(x[:, :127])], 1)),
    "rows put together": ((6, 256), lambda x: torch.cat([codes(x[4:]), codes(x[:3])])),
    "a part": ((5, 300), lambda x: codes(x)[:, 7:263]),
    "turned": ((256, 5), lambda x: codes(x).t()),
    "turned before": ((256, 5), lambda x: codes(x.t() * 2)),
    "of several dims": ((5, 2, 128), lambda x: codes(x).view(5, 256)),
    "of heads": ((2, 5, 128), lambda x: codes(x).transpose(0, 1).reshape(5, 256)),
    "padded": ((5, 250), lambda x: torch.nn.functional.pad(codes(x), (3, 3))),
    "every other row": ((10, 256), lambda x: codes(x)[::2]),
    "gathered": ((9, 256), lambda x: codes(x)[[3, 3, 8, 0, 1]]),
    "one row for all": ((1, 256), lambda x: codes(x).expand(5, 256)),
    "rolled": ((5, 256), lambda x: codes(x).roll(70, 1)),
    "after a product": ((5, 256), lambda x: codes(x @ torch.eye(256, dtype=x.dtype))),
}
"""How activations are seen: what is given, and the codes that are multiplied."""


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("way", SEEN)
def test_activations_that_are_seen_in_any_way(way: str) -> None:
    size, seen = SEEN[way]
    x, w = inputs(1, int(np.prod(size)), 1, torch.int8)[0].view(size).half(), inputs(1, 256, 65, torch.int8)[1]
    given = seen(x)
    got = launched(lambda x, w: torch.ops.aten._int_mm(seen(x), w[:, : given.shape[1]].t()), x, w[:, : given.shape[1]].contiguous())
    assert torch.equal(got.double(), given.double() @ w[:, : given.shape[1]].double().t())


@pytest.mark.usefixtures("on_chip")
def test_what_else_reads_the_codes_has_them() -> None:
    """The sum of a row's codes, as zero points of weights need it, and the codes themselves."""
    x, w = inputs(33, 256, 64, torch.int8)

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q = (x * 16).round().clamp(-128, 127).to(torch.int8)
        return torch.ops.aten._int_mm(q, w.t()), q.sum(-1, dtype=torch.int32), q

    codes = (x.float() * 16).to(x.dtype).float().round().clamp(-128, 127).double()
    product, sums, given = launched(f, x, w)
    assert torch.equal(product.double(), codes @ w.double().t())
    assert torch.equal(sums.double(), codes.sum(-1))
    assert torch.equal(given.double(), codes)


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("first", [0, 1, 6, 64, 127])
def test_weights_of_the_device_begin_anywhere(first: int) -> None:
    x, w = inputs(5, 256, 65, torch.int8)
    buffer = torch.cat([torch.zeros(first, dtype=torch.int8), w.flatten()]).to("spyre")
    weights = buffer[first:].view(65, 256)
    exact = codes(x).double() @ w.double().t()
    assert torch.equal(launched(whole, x.to("spyre"), weights).cpu().double(), exact)
    weights[3] = weights[7]
    exact[:, 3] = exact[:, 7]
    assert torch.equal(launched(whole, x.to("spyre"), weights).cpu().double(), exact)
    assert torch.equal(buffer.cpu()[first:].view(65, 256)[3], w[7])


@pytest.mark.parametrize("size", [(3, 256, 64), (130, 1024, 512), (1, 512, 200)])
@pytest.mark.parametrize("weights", [torch.int8, E4M3])
def test_every_level_has_the_same_values(size: tuple[int, int, int], weights: torch.dtype) -> None:
    x, w = inputs(*size, weights)
    f = whole if weights == torch.int8 else small
    with torch.no_grad():
        text = ktir.capture(f, x, w)
    out = np.zeros((size[0], size[2]), np.int32 if weights == torch.int8 else np.float32)
    bits = w.numpy() if weights == torch.int8 else w.view(torch.uint8).numpy()
    assert check_levels(text, [x.view(torch.int16).numpy().view(np.uint16), bits, out])[-1].exact


@pytest.mark.parametrize(
    ("weights", "pair"),
    [(torch.int8, "i8x2"), *(pytest.param(*other, marks=pytest.mark.long) for other in ((E4M3, "e4m3x2"), (E5M2, "e5m2x2")))],
)
def test_they_are_multiplied_at_twice_the_rate(weights: torch.dtype, pair: str) -> None:
    """And the whole takes less than the same product in bfloat16."""
    x, w = inputs(512, 1024, 1024, weights)
    product = whole if weights == torch.int8 else small
    machine = program(lambda x, w: (product(x, w).float() * 2.0**-8).to(x.dtype), x, w)
    plain = program(lambda x, w: x @ w.t(), x, w.to(x.dtype))
    assert halves(machine) == {pair}
    assert machine.report.cycles < 0.95 * plain.report.cycles


@pytest.mark.parametrize("depth", [64, 130, 192])
def test_depths_without_whole_blocks_are_multiplied_one_by_one(depth: int) -> None:
    assert halves(program(whole, *inputs(5, depth, 64, torch.int8))) == {"f16"}


def test_products_of_the_same_activations_share_their_pairs() -> None:
    x, w = inputs(40, 256, 192, torch.int8)
    with torch.no_grad():
        text = ktir.capture(lambda x, w: (whole(x, w), whole(x, w[:64])), x, w)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, "ktir-separate-calls,cse,ktir-generalize,ktir-break-views")
        assert str(module).count('"ktir.pair_bytes"(') == 1


@pytest.mark.parametrize("weights", [torch.int8, E4M3])
def test_a_whole_feed_forward_block_takes_less_than_in_bfloat16(weights: torch.dtype) -> None:
    """Quantised behind a norm, and again behind what is computed of two products: what crosses kernels is narrow, and made once."""
    hidden, inner = 512, 2048
    x, up = inputs(256, hidden, 2 * inner, weights)
    down = inputs(256, inner, hidden, weights)[1]

    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if w.dtype == x.dtype:
            return x @ w.t()
        own = x.float().abs().amax(-1, keepdim=True) / (127 if w.dtype == torch.int8 else 448)
        scaled, one = x.float() / own, torch.ones(1, w.shape[0])
        if w.dtype == torch.int8:
            return (torch.ops.aten._int_mm(scaled.round().clamp(-127, 127).to(torch.int8), w.t()).float() * own).to(x.dtype)
        return torch.ops.aten._scaled_mm(scaled.to(w.dtype), w.t(), own, one, out_dtype=x.dtype)

    def block(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.rms_norm(x, (hidden,))
        return x + linear(torch.nn.functional.silu(linear(h, up[:inner])) * linear(h, up[inner:]), down)

    plain = program(block, x, up.to(x.dtype), down.to(x.dtype)).report.cycles
    assert program(block, x, up, down).report.cycles < 0.95 * plain
