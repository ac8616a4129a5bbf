"""Weights of four bits in words, which move as words and are taken apart in front of the array. PyTorch in f64 is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ktir import config, lang
from ktir.runtime import executable

pytestmark = pytest.mark.usefixtures("on_chip")


def unpacked(words: torch.Tensor) -> torch.Tensor:
    """[K / 8, N] -> [K, N], as GPTQ has it."""
    places = torch.arange(0, 32, 4, dtype=torch.int32)
    return ((words[:, None] >> places[None, :, None]) & 15).reshape(-1, words.shape[1])


def by_group(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    weights = unpacked(words)
    return (weights.to(s.dtype) - 8) * s.repeat_interleave(weights.shape[0] // s.shape[0], 0)


def with_zeros(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Zero points that are no whole numbers: the difference is rounded, and then the product."""
    weights = unpacked(words).to(s.dtype)
    z = s * 100 + 7.3
    return ((weights.unflatten(0, (s.shape[0], -1)) - z[:, None]) * s[:, None]).reshape(weights.shape)


def one_by_one(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Shifted by numbers, put together, scaled in float32 and rounded once; the scales lie by column."""
    weights = torch.stack([(words >> (4 * j)) & 15 for j in range(8)], 1).flatten(0, 1) - 8
    scales = s.t().contiguous()
    return (weights.float().unflatten(0, (s.shape[0], -1)) * scales.t()[:, None].float()).flatten(0, 1).to(s.dtype)


def by_column(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (unpacked(words).to(torch.int8) - 8).to(s.dtype) * s[0]


def draws(half: torch.dtype, rows: int, k: int, n: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(k + n)
    words = torch.randint(-(2**31), 2**31, (k // 8, n), generator=draw).int()
    return torch.randn(rows, k, generator=draw).to(half), words, (torch.rand(k // group, n, generator=draw) / 64).to(half)


def run(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, list[executable.Launch]]:
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*inputs)
    return got, launches


def close(got: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | float = 0.0) -> None:
    """Against the exact product of the weights that eager makes: a rounding of the result, and per block of 64 two to f32."""
    exact = x.double() @ weights.double() + bias
    unit = 2.0 ** (torch.frexp(exact)[1] - (11 if got.dtype == torch.float16 else 8)).double().clamp(min=2.0**-24)
    roundings = 2 * -(-x.shape[1] // 64) + 2
    assert ((got.double() - exact).abs() <= unit / 2 + roundings * 2.0**-24 * (x.double().abs() @ weights.double().abs() + abs(bias))).all()


def moves_words(launches: list[executable.Launch], words: torch.Tensor) -> bool:
    """Whether words went as they are to where they are multiplied: weights in 16 bits, written and read, would be 8 times as many bytes."""
    return sum(k.dram_read + k.dram_written for launch in launches for k in launch.machine.report.kernels) < 6 * words.nbytes


@pytest.mark.parametrize(
    ("way", "half", "rows", "k", "n", "group"),
    [
        (by_group, torch.float16, 1, 1024, 384, 64),
        (with_zeros, torch.bfloat16, 2, 1024, 512, 128),
        (one_by_one, torch.float16, 3, 1024, 330, 32),
        (by_column, torch.bfloat16, 1, 1024, 384, 1024),
        (by_group, torch.bfloat16, 5, 1024, 512, 512),
    ],
)
def test_words_are_taken_apart_before_the_array(
    way: Callable[..., torch.Tensor], half: torch.dtype, rows: int, k: int, n: int, group: int
) -> None:
    x, words, s = draws(half, rows, k, n, group)
    got, launches = run(lambda x, words, s: x @ way(words, s), x, words, s)
    close(got, x, way(words, s))
    assert moves_words(launches, words)


def test_bias_is_added_before_the_result_is_rounded() -> None:
    x, words, s = draws(torch.float16, 2, 1024, 384, 128)
    bias = torch.linspace(-3, 3, 384).half()
    got, launches = run(lambda x, words, s, b: torch.nn.functional.linear(x, by_group(words, s).t(), b), x, words, s, bias)
    close(got, x, by_group(words, s), bias.double())
    assert moves_words(launches, words)


def bytes_along_rows(packed: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Two weights in a byte, as torchao has them."""
    weights = torch.stack((packed & 15, packed >> 4), -1).flatten(1)
    return ((weights.to(s.dtype) - 8).unflatten(1, (s.shape[1], -1)) * s[:, :, None]).flatten(1).t()


def wraps(packed: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Of unsigned bytes 8 is taken away: 0 becomes 248."""
    return ((packed & 15) - 8).to(s.dtype).t() * s[:, 0]


def high(packed: torch.Tensor) -> torch.Tensor:
    return (packed >> 4) & 15


def shifted_together(packed: torch.Tensor) -> torch.Tensor:
    return ((packed[:, :, None] >> torch.tensor([0, 4], dtype=torch.uint8)) & 15).flatten(1)


def one_after_the_other(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack((packed & 15, high(packed)), -1).flatten(1)


def of_integers(packed: torch.Tensor) -> torch.Tensor:
    wide = packed.int()
    return torch.stack((wide & 15, high(wide)), -1).flatten(1)


def with_signs(packed: torch.Tensor) -> torch.Tensor:
    signed = packed.view(torch.int8)
    return torch.stack(((signed << 4) >> 4, signed >> 4), -1).flatten(1)


@pytest.mark.parametrize(
    ("unpack", "half", "rows", "group"),
    [
        (one_after_the_other, torch.float16, 1, 128),
        (shifted_together, torch.bfloat16, 3, 32),
        (of_integers, torch.float16, 2, 64),
        (with_signs, torch.bfloat16, 4, 256),
        (one_after_the_other, torch.bfloat16, 40, 512),
        (with_signs, torch.float16, 130, 64),
    ],
)
def test_nibbles_of_bytes(unpack: Callable[[torch.Tensor], torch.Tensor], half: torch.dtype, rows: int, group: int) -> None:
    """Two weights in a byte, by rows of K, as torchao has them."""
    x, words, s = draws(half, rows, 512, 192, group)
    packed, s = words.view(torch.uint8).reshape(192, 256), s.t().contiguous()

    def weights(packed: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        found = unpack(packed).to(s.dtype)
        return ((found if unpack is with_signs else found - 8).unflatten(1, (s.shape[1], -1)) * s[:, :, None]).flatten(1)

    got, launches = run(lambda x, packed, s: torch.nn.functional.linear(x, weights(packed, s)), x, packed, s)
    close(got, x, weights(packed, s).t())
    assert len(launches) == 1
    if rows <= 40:
        assert moves_words(launches, packed)


@pytest.mark.parametrize(
    ("half", "rows", "k", "n", "group"),
    [
        (torch.float16, 1, 512, 512, 128),
        (torch.bfloat16, 3, 256, 192, 64),
        (torch.float16, 2, 192, 64, 32),
        (torch.bfloat16, 135, 256, 128, 256),
    ],
)
def test_weights_as_pytorch_packs_them(half: torch.dtype, rows: int, k: int, n: int, group: int) -> None:
    """`_weight_int4pack_mm_for_cpu`: (q - 8) * scale + zero in float32, and so the sums."""
    draw = torch.Generator().manual_seed(k)
    q = torch.randint(0, 16, (n, k), dtype=torch.int32, generator=draw)
    x, pairs = torch.randn(rows, k, generator=draw).to(half), (torch.randn(k // group, n, 2, generator=draw) / 16).to(half)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q, 2)
    got, launches = run(lambda x, packed, pairs: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group, pairs), x, packed, pairs)
    assert got.dtype == half
    scale, zero = (pairs[..., i].double().repeat_interleave(group, 0).t() for i in range(2))
    exact = x.double() @ ((q - 8) * scale + zero).t()
    unit = 2.0 ** (torch.frexp(exact)[1] - (11 if half == torch.float16 else 8)).double().clamp(min=2.0**-24)
    sums = x.double().abs() @ ((q - 8).abs() * scale.abs() + zero.abs()).t()  # f32: a rounding per block and group, and of each sum of x
    assert ((got.double() - exact).abs() <= unit / 2 + (2 * k // min(group, 64) + group) * 2.0**-24 * sums).all()
    assert len(launches) == 1


@pytest.mark.parametrize("cores", [8, 64])
def test_grid_is_that_of_the_target(cores: int, tmp_path: Path) -> None:
    target = tmp_path / "other.toml"
    target.write_text(f'name = "other"\ncores = {cores}\n')
    x, words, s = draws(torch.float16, 2, 1024, 4096, 128)
    with config.patch(target=str(target)):
        got, launches = run(lambda x, words, s: x @ by_group(words, s), x, words, s)
    close(got, x, by_group(words, s))
    (launch,) = launches
    assert {k.cores for k in launch.machine.report.kernels if "product" in k.name} == {cores}


def other_bits(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Not four bits from a multiple of four on."""
    return torch.cat([((words >> j) & 15) - 8 for j in (0, 3, 8, 12)]).to(s.dtype) * s[0]


def scales_out_of_order(words: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Groups in another order than the words: what stands next to each other has no scale in common."""
    return (unpacked(words).to(s.dtype) - 8) * s.repeat(8 * words.shape[0] // s.shape[0], 1)


@pytest.mark.parametrize("way", [bytes_along_rows, wraps, other_bits, scales_out_of_order])
def test_what_is_otherwise_is_right_too(way: Callable[..., torch.Tensor]) -> None:
    x, words, s = draws(torch.float16, 3, 256, 64, 64)
    if way in (bytes_along_rows, wraps):
        words, s = words.view(torch.uint8).reshape(64, 128), s.t().contiguous()
    weights = way(words, s)
    x = x[:, : weights.shape[0]].contiguous()
    got, _ = run(lambda x, words, s: x @ way(words, s), x, words, s)
    close(got, x, weights)


def test_tensors_put_together_are_a_second_operand() -> None:
    """Of a kernel by hand; on the chip as on the executor."""

    @lang.kernel
    def product(x, w, y):
        sums = lang.zeros((4, 64))
        for k in lang.range(2):
            weights = np.concatenate([w[k, 16 * j : 16 * j + 16] * np.float16(j - 1.5) for j in range(4)])
            sums[...] = lang.dot(x[k], weights, sums[...])
        y[:] = sums[...]

    x, w = (np.random.default_rng(n).standard_normal((2, n, 64)).astype(np.float16) for n in (4, 64))
    y, z = np.zeros((4, 64), np.float32), np.zeros((4, 64), np.float32)
    product[1](x, w, y)
    product[1].using(on="chip")(x, w, z)
    assert (y == z).all()
    factors = np.repeat(np.arange(4) - 1.5, 16)[:, None]
    exact = sum(x[k].astype(np.float64) @ (w[k] * factors.astype(np.float16)).astype(np.float64) for k in range(2))
    np.testing.assert_allclose(z, exact, rtol=0, atol=1e-4)


@pytest.mark.long
def test_memory_is_the_bound() -> None:
    x, words, s = draws(torch.float16, 1, 4096, 2048, 128)
    got, launches = run(lambda x, words, s: x @ by_group(words, s), x, words, s)
    close(got, x, by_group(words, s))
    cycles = sum(launch.machine.report.cycles for launch in launches)
    assert cycles <= (words.nbytes + s.nbytes) / launches[0].machine.target.dram_bytes_per_cycle / 0.8


@pytest.mark.parametrize("rows", [0, 2])
def test_no_rows_are_no_fault(rows: int) -> None:
    aten = torch.ops.aten
    packed = aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (64, 64), dtype=torch.int32), 2)
    pairs, words = torch.ones(1, 64, 2).bfloat16(), torch.randint(0, 9, (8, 64), dtype=torch.int32)

    def both(x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return aten._weight_int4pack_mm_for_cpu(x, packed, 64, pairs), x @ by_group(words, pairs[:, :, 0]), kept + 1

    x, kept = torch.randn(rows, 64).bfloat16(), torch.ones(3)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(both, backend="spyre", dynamic=False, options={"fallback": "error"})(x, kept)
    for a, b in zip(found, both(x, kept), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
