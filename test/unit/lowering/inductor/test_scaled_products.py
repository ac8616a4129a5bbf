"""`_scaled_mm` and its successor, and products of unsigned bytes. The oracle is the product of dequantised operands in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

import ktir
from ktir.checking.levels import check_levels
from ktir.cost.least import least_of_program
from ktir.cost.program import kernel_work
from ktir.emulator.machine.reports.roofline import pt_peak, roofline
from ktir.runtime import executable

pytestmark = pytest.mark.usefixtures("on_chip")
E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
_UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, E4M3: 2.0**-4, E5M2: 2.0**-3}
"""Half of the last place, relative to the number."""


def run(f: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str = "cpu") -> torch.Tensor:
    """What the chip makes of it, in one launch."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*(x.to(device) for x in inputs))
    assert len(launches) == 1
    return got.cpu()


def operands(m: int, k: int, n: int, a: torch.dtype = E4M3, b: torch.dtype = E4M3) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(m + k + n)
    return torch.randn(m, k, generator=draw).to(a), torch.randn(n, k, generator=draw).to(b).t()


def scales(*size: int) -> torch.Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(len(size))) + 0.1


def weights(*size: int) -> torch.Tensor:
    return torch.randint(-128, 128, size, dtype=torch.int8, generator=torch.Generator().manual_seed(sum(size)))


def near(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, block: int = 128) -> None:
    """Against dequantised operands in f64: a rounding to f32 per block of products that share scales, sum and scale, one to the type."""
    exact, size = a @ b, a.abs() @ b.abs()
    if bias is not None:
        exact, size = exact + bias.double(), size + bias.double().abs()
    allowed = (4 * -(-a.shape[1] // block) + 5) * 2.0**-24 * size
    allowed += _UNIT[got.dtype] * (exact.abs() + allowed) + (2.0**-10 if got.dtype == E4M3 else 2.0**-17 if got.dtype == E5M2 else 2.0**-25)
    assert ((got.double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize(("first", "second"), [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E5M2)])
@pytest.mark.parametrize("out", [torch.float32, torch.float16, torch.bfloat16, None])
def test_one_scale(first: torch.dtype, second: torch.dtype, out: torch.dtype | None) -> None:
    a, b = operands(5, 130, 66, first, second)
    s, t = torch.tensor(0.37), torch.tensor([1.25])
    got = run(lambda a, b, s, t: torch.ops.aten._scaled_mm(a, b, s, t, out_dtype=out), a, b, s, t)
    assert got.dtype == (out or first)
    near(got, a.double() * s.double(), b.double() * t.double())


@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_a_scale_per_row_and_a_bias(device: str) -> None:
    a, b = operands(33, 256, 128)
    s, t, bias = scales(33, 1), scales(1, 128), torch.linspace(-3, 3, 128).bfloat16()
    got = run(
        lambda a, b, s, t, c: torch.ops.aten._scaled_mm(a, b, s, t, bias=c, out_dtype=torch.bfloat16), a, b, s, t, bias, device=device
    )
    near(got, a.double() * s.double(), b.double() * t.double(), bias)


def test_a_row_major_second_operand() -> None:
    a, b = operands(5, 128, 64)
    b = b.contiguous()
    one = torch.tensor(1.0)
    near(run(lambda a, b, s: torch.ops.aten._scaled_mm(a, b, s, s, out_dtype=torch.float32), a, b, one), a.double(), b.double())


def test_a_result_of_one_byte_is_divided() -> None:
    a, b = operands(5, 128, 64)
    s, r = torch.tensor(1.0), torch.tensor(4.0)
    got = run(lambda a, b, s, r: torch.ops.aten._scaled_mm(a, b, s, s, scale_result=r, out_dtype=E5M2), a, b, s, r)
    near(got, a.double() / 4, b.double())


def test_recipes() -> None:
    a, b = operands(9, 128, 64)
    s, t = scales(9, 1), scales(1, 64)

    def f(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scaled_mm(a, b, s, ScalingType.RowWise, t, ScalingType.RowWise, output_dtype=torch.float32)

    near(run(f, a, b, s, t), a.double() * s.double(), b.double() * t.double())


def test_blocks_of_128() -> None:
    """Which eager on the CPU lacks."""
    a, b = operands(33, 512, 256)
    s, t = scales(4, 33).t(), scales(256, 4).t()
    got = run(lambda a, b, s, t: torch.ops.aten._scaled_mm(a, b, s, t, out_dtype=torch.bfloat16), a, b, s, t)
    near(got, a.double() * s.double().repeat_interleave(128, 1), b.double() * t.double().repeat_interleave(128, 0))


def test_blocks_of_128_by_128() -> None:
    a, b = operands(32, 256, 128)
    s, t = scales(2, 32).t(), scales(1, 4).t()  # rows of blocks are padded to four

    def f(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scaled_mm(a, b, s, ScalingType.BlockWise1x128, t, ScalingType.BlockWise128x128, output_dtype=torch.float32)

    near(run(f, a, b, s, t), a.double() * s.double().repeat_interleave(128, 1), b.double() * t[:2].double().repeat_interleave(128, 0))


def lies(scale: torch.Tensor) -> torch.Tensor:
    """Column by column, as PyTorch wants scales of blocks."""
    return scale.t().contiguous().t()


@pytest.mark.parametrize(("m", "k", "n"), [(5, 128, 64), (5, 256, 192), (5, 128, 128), (128, 512, 2), (130, 256, 129)])
def test_rows_of_blocks_on_both_sides(m: int, k: int, n: int) -> None:
    """Scales [M, K / 128] and [N, K / 128]."""
    a, b = operands(m, k, n)
    s, t = lies(scales(m, k // 128)), lies(scales(n, k // 128) * 3)
    kind = ScalingType.BlockWise1x128
    got = run(lambda a, b, s, t: scaled_mm(a, b, s, kind, t, kind, output_dtype=torch.float32), a, b, s, t)
    near(got, a.double() * s.double().repeat_interleave(128, 1), (b.t().double() * t.double().repeat_interleave(128, 1)).t())


@pytest.mark.parametrize(("m", "k", "n"), [(128, 128, 64), (256, 640, 66)])
def test_whole_blocks_on_the_left(m: int, k: int, n: int) -> None:
    """Scales [K / 128 rounded up to four, M / 128] and [N, K / 128]."""
    a, b = operands(m, k, n)
    blocks = k // 128
    s, t = lies(scales(-(-blocks // 4) * 4, m // 128)), lies(scales(n, blocks) * 3)

    def f(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scaled_mm(a, b, s, ScalingType.BlockWise128x128, t, ScalingType.BlockWise1x128, output_dtype=torch.float32)

    rows = s[:blocks].t().double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    near(run(f, a, b, s, t), a.double() * rows, (b.t().double() * t.double().repeat_interleave(128, 1)).t())


@pytest.mark.parametrize(("m", "k", "n"), [(1, 128, 64), (64, 128, 64), (128, 128, 128), (3, 192, 65)])
@pytest.mark.parametrize("upright", [False, True])
def test_scales_of_columns_lie_either_way(m: int, k: int, n: int, upright: bool) -> None:
    a, b = operands(m, k, n)
    s, t = scales(m, 1), scales(1, n) * 3
    kind = ScalingType.RowWise
    got = run(lambda a, b, s, t: scaled_mm(a, b, s, kind, t, kind, output_dtype=torch.float32), a, b, s, t.reshape(n, 1) if upright else t)
    near(got, a.double() * s.double(), b.double() * t.double())


def test_a_result_of_integers_is_not_truncated() -> None:
    """It is PyTorch's, which rounds."""
    a, b = operands(5, 128, 64)
    one = torch.tensor(0.01)

    def f(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._scaled_mm(a, b, s, s, out_dtype=torch.int8)

    with pytest.raises(Exception, match=r"'aten\._scaled_mm"):
        run(f, a, b, one)
    run(torch.add, one, one)


def in_tiles(scale: torch.Tensor) -> torch.Tensor:
    """Scales [rows, blocks] as the hardware that they were made for wants them, element by element."""
    rows, blocks = scale.shape
    tiles = torch.full((-(-rows // 128), -(-blocks // 4), 32, 4, 4), 127, dtype=torch.uint8)
    for r in range(rows):
        for c in range(blocks):
            tiles[r // 128, c // 4, r % 32, r % 128 // 32, c % 4] = scale.view(torch.uint8)[r, c]
    return tiles.view(E8M0).reshape(-1)


@pytest.mark.parametrize(("m", "k", "n", "first"), [(5, 256, 66, E4M3), (130, 96, 64, E5M2)])
@pytest.mark.parametrize("recipes", [False, True])
def test_blocks_of_32(m: int, k: int, n: int, first: torch.dtype, recipes: bool) -> None:
    """MX, which eager on the CPU lacks: scales are powers of two."""
    a, b = operands(m, k, n, first)
    draw = torch.Generator().manual_seed(k)
    s, t = (torch.randint(100, 150, (rows, k // 32), dtype=torch.uint8, generator=draw).view(E8M0) for rows in (m, n))

    def f(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if not recipes:
            return torch.ops.aten._scaled_mm(a, b, s, t, out_dtype=torch.float32)
        kinds: dict[str, Any] = {"swizzle_a": SwizzleType.SWIZZLE_32_4_4, "swizzle_b": SwizzleType.SWIZZLE_32_4_4}
        return scaled_mm(a, b, s, ScalingType.BlockWise1x32, t, ScalingType.BlockWise1x32, output_dtype=torch.float32, **kinds)

    got = run(f, a, b, in_tiles(s), in_tiles(t))
    near(got, a.double() * s.double().repeat_interleave(32, 1), b.double() * t.double().repeat_interleave(32, 1).t(), block=32)


def test_powers_of_two_that_scale() -> None:
    """All codes, whatever is moved; and what becomes such a number, around each of them and between two."""
    codes = torch.arange(256, dtype=torch.uint8).view(E8M0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        got = run(lambda s, dtype=dtype: s.reshape(16, 16).t().to(dtype), codes)
        torch.testing.assert_close(got, codes.reshape(16, 16).t().to(dtype), rtol=0, atol=0, equal_nan=True)
    bits = torch.arange(1 << 10, dtype=torch.int64) << 22
    x = torch.cat([bits, bits + 1, bits - 1, bits + (1 << 21)]).to(torch.int32).view(torch.float32)
    got = run(lambda x: x.to(E8M0), x)
    assert torch.equal(got.view(torch.uint8), x.to(E8M0).view(torch.uint8))


def test_other_recipes_are_refused_by_name() -> None:
    a = torch.zeros(128, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    s = torch.ones(1024).to(E4M3)
    kinds: dict[str, Any] = {"swizzle_a": SwizzleType.SWIZZLE_32_4_4, "swizzle_b": SwizzleType.SWIZZLE_32_4_4}

    def f(a: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return scaled_mm(a, a.t(), s, ScalingType.BlockWise1x16, s, ScalingType.BlockWise1x16, output_dtype=torch.float32, **kinds)

    with pytest.raises(Exception, match=r"'aten\._scaled_mm_v2") as refused:
        run(f, a, s)
    assert "AssertionError" not in str(refused.value)
    run(torch.add, s.float(), s.float())


@pytest.mark.parametrize("k", [130, 1100])
def test_products_of_unsigned_bytes_are_exact(k: int) -> None:
    """As torchao multiplies quantised activations; beyond what float32 adds up exactly too."""
    draw = torch.Generator().manual_seed(k)
    a = torch.randint(0, 256, (9, k), dtype=torch.uint8, generator=draw)
    b = torch.randint(-128, 128, (66, k), dtype=torch.int8, generator=draw)
    a[0], b[0] = 255, -128
    got = run(lambda a, b: torch.ops.aten._int_mm(a, b.t()), a, b)
    assert got.dtype == torch.int32
    assert (got == a.long() @ b.long().t()).all()


def _formats(f: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str = "cpu") -> tuple[torch.Tensor, list[str], int]:
    """What the chip makes of it, what the arguments are in memory, and the bytes that are read."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*(x.to(device) for x in inputs))
    (launch,) = launches
    machine = launch.machine
    return got.cpu(), [a.half for a in machine.program.arguments], sum(k.dram_read for k in machine.report.kernels)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 256, 100), (5, 128, 66), (33, 384, 130)])
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("device", ["cpu", "spyre"])
def test_the_array_multiplies_pairs(m: int, k: int, n: int, dtype: torch.dtype, device: str) -> None:
    a, b = operands(m, k, n, dtype, dtype)
    one = torch.tensor(1.0)
    got, halves, read_ = _formats(lambda a, b, s: torch.ops.aten._scaled_mm(a, b, s, s, out_dtype=torch.float32), a, b, one, device=device)
    near(got, a.double(), b.double())
    assert halves[:2] == ["e4m3x2" if dtype == E4M3 else "e5m2x2"] * 2
    assert a.numel() + b.numel() <= read_ <= 64 * (m + 1) * k + 2 * k * n


def test_every_code_is_multiplied() -> None:
    """Of f8E5M2 sums leave what float64 holds; infinities and NaNs are those of float32."""
    codes = torch.arange(256, dtype=torch.uint8)
    for dtype in (E4M3, E5M2):
        a = codes.view(dtype).reshape(2, 128)
        b = codes.flip(0).view(dtype).reshape(2, 128).t()
        one = torch.tensor(1.0)
        got, _, _ = _formats(lambda a, b, s: torch.ops.aten._scaled_mm(a, b, s, s, out_dtype=torch.float32), a, b, one)
        want = (a.double() @ b.double()).float()
        assert (got.isnan() == want.isnan()).all()
        torch.testing.assert_close(got, want, rtol=2.0**-22, atol=0, equal_nan=True)


@pytest.mark.parametrize("k", [128, 2176])
def test_pairs_of_integers_are_exact(k: int) -> None:
    draw = torch.Generator().manual_seed(k)
    a, b = (torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=draw) for n in (9, 66))
    a[0], b[0] = -128, -128
    got, halves, _ = _formats(lambda a, b: torch.ops.aten._int_mm(a, b.t()), a, b)
    assert (got == a.long() @ b.long().t()).all()
    assert halves[:2] == ["i8x2"] * 2


def quantised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._int_mm((x * 20).round().clamp(-128, 127).to(torch.int8), w.t())


@pytest.mark.parametrize("k", [256, 2048])
def test_activations_that_the_program_quantises(k: int) -> None:
    """They are no bytes in memory; the weights are."""
    x, w = torch.randn(9, k, generator=torch.Generator().manual_seed(k)).half(), weights(66, k)
    got, halves, _ = _formats(quantised, x, w)
    torch.testing.assert_close(got, quantised(x, w), rtol=0, atol=0)
    assert halves[0] != "i8x2"
    assert "i8x2" in halves


def shifted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A scale and a zero point per row, which are found on the way."""
    low, high = x.float().amin(-1, keepdim=True).clamp(max=0), x.float().amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-6)
    zero = (-128 - (low / scale).round()).clamp(-128, 127)
    codes = ((x.float() / scale).round() + zero).clamp(-128, 127).to(torch.int8)
    sums = torch.ops.aten._int_mm(codes, w.t()) - zero.to(torch.int32) * w.to(torch.int32).sum(1)
    return sums.float() * scale


def test_activations_with_zero_points() -> None:
    x, w = torch.randn(3, 193, generator=torch.Generator().manual_seed(0)).half(), weights(70, 193)
    torch.testing.assert_close(run(shifted, x, w), shifted(x, w), rtol=0, atol=0)


def test_sums_begin_anywhere_and_wrap() -> None:
    a, w = weights(5, 256), weights(66, 256)
    c = torch.randint(-(2**31), 2**31 - 1, (5, 66), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    got, halves, _ = _formats(lambda a, w, c: torch.addmm(c, a.int(), w.t().int()), a, w, c)
    torch.testing.assert_close(got, torch.addmm(c, a.int(), w.t().int()), rtol=0, atol=0)
    assert halves[:2] == ["i8x2"] * 2


@pytest.mark.parametrize("dtype", [E4M3, torch.int8])
def test_reports_count_both_products_of_a_pair(dtype: torch.dtype) -> None:
    """So many as the matmul has, 512 rows over 64 corelets, at up to twice the rate of float16."""
    a, w = (x if dtype == torch.int8 else x.float().to(dtype) for x in (weights(512, 256), weights(256, 256)))

    def f(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        one = torch.ones((), device=a.device)
        return (
            torch.ops.aten._int_mm(a, w.t())
            if dtype == torch.int8
            else torch.ops.aten._scaled_mm(a, w.t(), one, one, out_dtype=torch.float16)
        )

    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(a, w)
    machine = launches[0].machine
    works = [kernel_work(kernel, machine.target) for kernel in machine.program.kernels]
    places = roofline(machine.trace, machine.target)
    assert sum(work.multiplications for work in works) == 512 * 256 * 256
    assert sum(work.lane_products for work in works) == 512 * 256 * 128
    assert 2 * 512 * 256 * 256 <= sum(place.flops for place in places) < 2.2 * 512 * 256 * 256
    assert max(place.peak for place in places) == 2 * pt_peak(machine.target)
    assert least_of_program(machine.program, works, machine.target).cycles < machine.report.cycles


def test_a_slice_between_pairs_goes_another_way() -> None:
    """On the host such a view is another tensor; K begins at an odd element of it."""
    a, b = operands(4, 258, 64)
    one = torch.tensor(1.0)
    got, _, _ = _formats(lambda a, b, s: torch.ops.aten._scaled_mm(a[:, 1:129], b[1:129], s, s, out_dtype=torch.float32), a, b, one)
    near(got, a[:, 1:129].double(), b[1:129].double())


@pytest.mark.parametrize(("m", "k", "n"), [(1, 256, 100), (33, 384, 130)])
@pytest.mark.parametrize("dtype", [E4M3, E5M2, torch.int8])
def test_every_level_has_the_same_bits(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    """The KTIR executor runs pairs, and so do both executors of the machine; the stream check knows them by itself."""
    whole, one = dtype == torch.int8, torch.ones(1)
    a, w = (x if whole else x.float().to(dtype) for x in (weights(m, k), weights(n, k)))

    def f(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._int_mm(a, w.t()) * s if whole else torch.ops.aten._scaled_mm(a, w.t(), s, s, out_dtype=torch.float32)

    with torch.no_grad():
        text = str(ktir.capture(f, a, w, one))
    assert "vector<2x" not in text
    arrays = [x.view(torch.int8 if whole else torch.uint8).numpy() for x in (w, a)]  # in the order in which the program reads them
    results = check_levels(text, [*arrays, one.numpy(), np.zeros((m, n), np.float32)], cores=2)
    assert [r.name for r in results[-2:]] == ["tape", "step"]
    near(torch.from_numpy(results[-1].arrays[-1]), a.double(), w.double().t())
