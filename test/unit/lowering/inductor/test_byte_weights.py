"""Linear layers with weights of one byte, which move as bytes and are widened in front of the array. PyTorch in f64 is the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.checking.levels import check_levels
from ktir.runtime import executable

pytestmark = pytest.mark.usefixtures("on_chip")
E4M3, E5M2, I8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8


def weights(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """All codes but NaN and infinities, in any order."""
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    codes = codes if dtype is I8 else codes[torch.isfinite(codes.float())]
    draw = torch.Generator().manual_seed(3)
    return codes[torch.randint(len(codes), shape, generator=draw)]


def run(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, executable.Launch]:
    """What the chip makes of it, and its launch."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*inputs)
    (launch,) = launches
    return got, launch


def close(got: torch.Tensor, x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor | float = 1.0) -> None:
    """Against the exact product: a rounding of the result to its type, and one to f32 per block of 64 products and sum."""
    exact = x.double() @ w.double().T * scale
    unit = 2.0 ** (torch.frexp(exact)[1] - (11 if got.dtype == torch.float16 else 8)).double().clamp(min=2.0**-24)
    roundings = 2 * -(-w.shape[1] // 64) + 1
    allowed = unit / 2 + roundings * 2.0**-24 * (x.double().abs() @ w.double().abs().T) * scale
    assert ((got.double() - exact).abs() <= allowed).all()


def moved(launch: executable.Launch) -> int:
    """Bytes that the launch read from memory."""
    return sum(k.dram_read for k in launch.machine.report.kernels)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("dtype", "rows", "n", "k"), [(E4M3, 1, 100, 130), (E5M2, 57, 130, 99), (I8, 5, 67, 130), (E4M3, 300, 64, 192)])
def test_values(half: torch.dtype, dtype: torch.dtype, rows: int, n: int, k: int) -> None:
    x, w = torch.linspace(-2, 3, rows * k).reshape(rows, k).to(half) / 256, weights(dtype, n, k)
    got, launch = run(lambda x, w: torch.nn.functional.linear(x, w.to(half)), x, w)
    close(got, x, w)
    assert launch.machine.program.arguments[1].half in ("e4m3x2", "e5m2x2", "i8x2")


def test_scale_behind_the_product() -> None:
    """As torchao's int8 weights are read."""
    x, w, s = torch.linspace(-2, 3, 3 * 100).reshape(3, 100).half(), weights(I8, 66, 100), torch.linspace(0.001, 0.01, 66).half()
    got, _ = run(lambda x, w, s: torch.mm(x, w.t().to(torch.float16)) * s, x, w, s)
    close(got, x, w, s.double())


@pytest.mark.parametrize("k", [130, 2100])
def test_products_of_bytes_are_exact(k: int) -> None:
    """`_int_mm`, beyond what float32 adds up exactly too."""
    a, w = weights(I8, 5, k), weights(I8, 66, k)
    a[0], w[0] = -128, -128
    got, launch = run(lambda a, w: torch.ops.aten._int_mm(a, w.t()), a, w)
    assert got.dtype == torch.int32
    assert (got == (a.long() @ w.long().T)).all()
    assert "i8x2" in {argument.half for argument in launch.machine.program.arguments}


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_packed_weights_of_aten(half: torch.dtype) -> None:
    x, w, s = torch.linspace(-2, 3, 3 * 128).reshape(3, 128).to(half), weights(I8, 66, 128), torch.linspace(0.001, 0.01, 66).to(half)
    got, launch = run(torch.ops.aten._weight_int8pack_mm, x, w, s)
    close(got, x, w, s.double())
    assert "i8x2" in {argument.half for argument in launch.machine.program.arguments}


def test_packed_weights_of_aten_beside_float32() -> None:
    """Sums in float32, as on the host: each product is rounded, and each sum."""
    x, w, s = torch.linspace(-2, 3, 3 * 128).reshape(3, 128), weights(I8, 66, 128), torch.linspace(0.001, 0.01, 66)
    got, _ = run(torch.ops.aten._weight_int8pack_mm, x, w, s)
    exact, sums = (a.double() @ b.double().T * s.double() for a, b in ((x, w), (x.abs(), w.double().abs())))
    assert ((got.double() - exact).abs() <= (128 + 2) * 2.0**-24 * sums).all()


def test_not_a_number_stays_that() -> None:
    w = weights(E4M3, 4, 64)
    w.view(torch.uint8)[1, 5], w.view(torch.uint8)[2, 6] = 0x7F, 0xFF
    got, _ = run(lambda x, w: torch.nn.functional.linear(x, w.half()), torch.ones(1, 64).half(), w)
    assert got.isnan().tolist() == [[False, True, True, False]]


def test_odd_rows_and_columns_go_another_way() -> None:
    """Of neither dim can rows be paired: right, if wider in memory."""
    x, w = torch.linspace(-1, 1, 5 * 131).reshape(5, 131).half(), weights(I8, 67, 131)
    got, _ = run(lambda x, w: torch.mm(x, w.t().half()), x, w)
    close(got, x, w)


def test_what_else_is_done_to_bytes() -> None:
    """Weights that something besides matmuls reads are not bytes on the device."""
    x, w = torch.linspace(-1, 1, 5 * 64).reshape(5, 64).half(), weights(I8, 64, 64)
    got, _ = run(lambda x, w: torch.mm(x, w.t().half()) + w[:5].half(), x, w)
    want = x.double() @ w.double().T + w[:5].double()
    torch.testing.assert_close(got.double(), want, rtol=2e-3, atol=0.25)


def test_looked_up_rows() -> None:
    """Indices choose single rows, of which two would share a stick: such bytes are wider on the device."""
    w, rows = weights(E4M3, 64, 64), torch.tensor([3, 3, 62, 0])
    got, _ = run(lambda w, rows: w.half()[rows] * 2, w, rows)
    assert (got == w.half()[rows] * 2).all()


@pytest.mark.long
@pytest.mark.parametrize("dtype", [E4M3, E5M2, I8])
def test_memory_is_the_bound(dtype: torch.dtype) -> None:
    x, w = torch.linspace(-2, 3, 1024).reshape(1, 1024).half() / 1024, weights(dtype, 4096, 1024)
    got, launch = run(lambda x, w: torch.nn.functional.linear(x, w.half()), x, w)
    close(got, x, w)
    assert w.numel() <= moved(launch) < 1.01 * w.numel()
    assert launch.machine.report.cycles <= w.numel() / launch.machine.target.dram_bytes_per_cycle / 0.9


@pytest.mark.turn
def test_what_widening_takes_is_part_of_the_plan() -> None:
    """Several layers on few rows: were they one kernel, each core would widen all weights for itself, in more time than bytes save."""

    def block(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        x = x + torch.nn.functional.linear(x, a.to(x.dtype))
        h = torch.nn.functional.gelu(torch.nn.functional.linear(torch.nn.functional.layer_norm(x, (128,)), b.to(x.dtype)))
        return x + torch.nn.functional.linear(h, c.to(x.dtype))

    x = torch.linspace(-2, 3, 100 * 128).reshape(100, 128).half()
    codes = [(weights(E4M3, *shape).float() / 4096).to(E4M3) for shape in ((128, 128), (512, 128), (128, 512))]
    narrow, wide = (run(block, x, *(w.to(dtype) for w in codes)) for dtype in (E4M3, torch.float16))
    torch.testing.assert_close(narrow[0], wide[0], rtol=1e-2, atol=1e-2)
    assert moved(narrow[1]) < moved(wide[1])
    assert narrow[1].machine.report.cycles < wide[1].machine.report.cycles


@pytest.mark.parametrize("dtype", [E4M3, I8])
def test_every_level_has_the_same_bits(dtype: torch.dtype) -> None:
    """From the tiled level on; the stream, run in both modes, is what the allocated level says."""
    x, w = torch.linspace(-2, 3, 3 * 70).reshape(3, 70).half() / 64, weights(dtype, 130, 70)
    with torch.no_grad():
        text = str(ktir.capture(lambda x, w: torch.nn.functional.linear(x, w.half()), x, w))
    arrays = [w.view(torch.int8 if dtype is I8 else torch.uint8).numpy(), x.numpy(), np.zeros((3, 130), np.float16)]
    *_, tape, step = check_levels(text, arrays, cores=2)
    close(torch.from_numpy(tape.arrays[2]), x, w)
    assert (tape.arrays[2] == step.arrays[2]).all()
