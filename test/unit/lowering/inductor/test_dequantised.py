"""Linear layers whose weights of one byte are dequantised in front of the product: bytes move, and each block is computed on its way to the
array, rounded as PyTorch rounds it. The product of eager's own weights in f64 is the oracle."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.checking.levels import check_levels
from ktir.runtime import executable

pytestmark = pytest.mark.usefixtures("on_chip")
E4M3, E5M2, I8, U8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8
NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", E4M3: "f8E4M3FN", E5M2: "f8E5M2", I8: "i8", U8: "i8"}
PAIRS = {"e4m3x2", "e5m2x2", "i8x2"}
Tensor = torch.Tensor
linear = torch.nn.functional.linear

FORMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "channel": lambda w, s, z: w.to(s.dtype) * s[:, :1],
    "scale first": lambda w, s, z: s[:, :1] * w.to(s.dtype),
    "tensor": lambda w, s, z: w.to(s.dtype) * s[0, 0],
    "number": lambda w, s, z: w.to(s.dtype) * 0.37,
    "in float32": lambda w, s, z: (w.float() * s[:, :1].float()).to(s.dtype),
    "groups": lambda w, s, z: (w.to(s.dtype).unflatten(1, (s.shape[1], -1)) * s[:, :, None]).flatten(1),
    "repeated": lambda w, s, z: w.to(s.dtype) * s.repeat_interleave(w.shape[1] // s.shape[1], 1),
    "zero points": lambda w, s, z: (w.to(s.dtype) - z[:, :1].to(s.dtype)) * s[:, :1],
    "zero points of groups": lambda w, s, z: (
        (w.to(s.dtype).unflatten(1, (s.shape[1], -1)) - z[:, :, None].to(s.dtype)) * s[:, :, None]
    ).flatten(1),
    "repeated zero points": lambda w, s, z: (
        (w.to(s.dtype) - z.to(s.dtype).repeat_interleave(w.shape[1] // s.shape[1], 1)) * s.repeat_interleave(w.shape[1] // s.shape[1], 1)
    ),
    "integer zero points": lambda w, s, z: (w.int() - z[:, :1].int()).to(s.dtype) * s[:, :1],
    "zero points that wrap": lambda w, s, z: (w - z[:, :1].to(w.dtype)).to(s.dtype) * s[:, :1],
}
INTEGERS = ("integer zero points", "zero points that wrap")


def drawn(dtype: torch.dtype, half: torch.dtype, m: int, n: int, k: int, group: int = 128) -> list[Tensor]:
    """Activations, all codes that are finite, scales and zero points of groups."""
    draw = torch.Generator().manual_seed(3)
    codes = torch.arange(256, dtype=U8).view(dtype)
    codes = codes[torch.isfinite(codes.float())] if dtype.is_floating_point else codes
    x, w = torch.randn(m, k, generator=draw).to(half) / 64, codes[torch.randint(len(codes), (n, k), generator=draw)]
    s = (torch.rand(n, k // group, generator=draw) + 0.1).to(half) / 64
    return [x, w, s, torch.randint(-20, 20, (n, k // group), generator=draw).to(I8)]


def run(f: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, executable.Launch]:
    """What the chip makes of it, and its launch."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*inputs)
    (launch,) = launches
    return got, launch


def close(got: Tensor, x: Tensor, w: Tensor, bias: Tensor | None = None) -> None:
    """Against the exact product: a rounding of the result to its type, and one to f32 per block of 64 products and sum."""
    exact = x.double() @ w.double().mT
    if bias is not None:
        exact = exact + bias.double()
    unit = 2.0 ** (torch.frexp(exact)[1] - (11 if got.dtype == torch.float16 else 8)).double().clamp(min=2.0**-24)
    sums = 2.0**-24 * (2 * -(-w.shape[-1] // 64) + 1) * (x.double().abs() @ w.double().abs().mT)
    assert ((got.double() - exact).abs() <= (unit / 2 if bias is None else unit) + sums).all()


def only_bytes(launch: executable.Launch, w: Tensor) -> None:
    """Weights have been read once, as bytes, and nothing of their size has been stored."""
    kernels = launch.machine.report.kernels
    assert PAIRS & {argument.half for argument in launch.machine.program.arguments}
    assert sum(k.dram_read for k in kernels) < 1.6 * w.numel()
    assert sum(k.dram_written for k in kernels) < w.numel()


KINDS = [(I8, torch.float16, 1), (E4M3, torch.bfloat16, 3), (U8, torch.bfloat16, 33)]


@pytest.mark.parametrize(
    ("form", "dtype", "half", "rows"), [(form, *kind) for form in FORMS for kind in KINDS if kind[0] is not E4M3 or form not in INTEGERS]
)
def test_values(form: str, dtype: torch.dtype, half: torch.dtype, rows: int) -> None:
    x, w, s, z = drawn(dtype, half, rows, 192, 256)
    got, launch = run(lambda x, w, s, z: linear(x, FORMS[form](w, s, z)), x, w, s, z)
    close(got, x, FORMS[form](w, s, z))
    only_bytes(launch, w)


@pytest.mark.parametrize(
    ("form", "dtype"), [("channel", E4M3), ("groups", I8), ("zero points of groups", U8), ("zero points that wrap", I8)]
)
def test_every_level_has_the_same_bits(form: str, dtype: torch.dtype) -> None:
    """From the tiled level on; the stream, run in both modes, is what the allocated level says."""
    given = drawn(dtype, torch.float16, 3, 130, 256)
    with torch.no_grad():
        text = str(ktir.capture(lambda x, w, s, z: linear(x, FORMS[form](w, s, z)), *given))
    arrays, left = [], list(given)
    for shape in re.findall(r'ktir.role = "input", ktir.type = tensor<([^>]*)>', text):
        found = next(i for i, t in enumerate(left) if "x".join([*map(str, t.shape), NAMES[t.dtype]]) == shape)
        arrays.append((t.view(U8) if (t := left.pop(found)).dtype is E4M3 else t).numpy())
    *_, tape, step = check_levels(text, [*arrays, np.zeros((3, 130), np.float16)], cores=2)
    close(torch.from_numpy(tape.arrays[-1]), given[0], FORMS[form](*given[1:]))
    assert (tape.arrays[-1] == step.arrays[-1]).all()


def test_bias_and_many_rows() -> None:
    x, w, s, _ = drawn(E5M2, torch.float16, 300, 130, 128)
    s, bias = s / 4096, torch.linspace(-1, 1, 130).half()
    got, launch = run(lambda x, w, s, b: linear(x, w.half() * s, b), x, w, s, bias)
    close(got, x, w.half() * s, bias)
    assert len(launch.machine.report.kernels) == 1


@pytest.mark.parametrize("rows", [1, 5])
def test_a_matrix_per_batch_with_groups(rows: int) -> None:
    """As experts have them."""
    x, w, s, _ = drawn(I8, torch.float16, 4 * rows, 4 * 96, 128, 64)
    x, w, s = x.view(4, rows, 128), w.view(4, 96, 128), s.view(4, 96, 2)

    def made(w: Tensor, s: Tensor) -> Tensor:
        return (w.half().unflatten(2, (2, 64)) * s[..., None]).flatten(2)

    got, launch = run(lambda x, w, s: torch.bmm(x, made(w, s).mT), x, w, s)
    close(got, x, made(w, s))
    only_bytes(launch, w)


def test_activations_that_are_computed() -> None:
    """A single row goes through memory to be seen in groups."""
    x, w, s, z = drawn(E4M3, torch.float16, 1, 96, 256)
    got, _ = run(lambda x, w, s, z: linear(torch.relu(x) + 1, FORMS["groups"](w, s, z)), x, w, s, z)
    close(got, torch.relu(x) + 1, FORMS["groups"](w, s, z))


@pytest.mark.parametrize("per_key", [False, True])
def test_keys_of_an_attention(per_key: bool) -> None:
    """Keys and values in int8: a block of keys at a time."""
    draw = torch.Generator().manual_seed(5)
    q = torch.randn(2, 130, 64, generator=draw).half()
    k, v = (torch.randint(-128, 128, (2, 256, 64), generator=draw).to(I8) for _ in range(2))
    s = (torch.rand(2, 256, 1, generator=draw) * 0.02).half() if per_key else torch.tensor(0.01).half()

    def attend(q: Tensor, k: Tensor, v: Tensor, s: Tensor) -> Tensor:
        return torch.softmax(q @ (k.to(q.dtype) * s).mT * 0.125, -1) @ (v.to(q.dtype) * 0.02)

    got, launch = run(attend, q, k, v, s)
    keys, values = ((t.half() * f).double() for t, f in ((k, s), (v, 0.02)))
    want = torch.softmax(q.double() @ keys.mT * 0.125, -1) @ values
    assert ((got.double() - want).abs().max() / want.abs().max()).item() < 2e-3
    only_bytes(launch, torch.cat((k, v)))


def test_sums_of_part_of_a_stick_go_another_way() -> None:
    """Numbers beyond the sum are zero, which a scale that is infinite would make no number of."""
    x, w, s, _ = drawn(I8, torch.float16, 3, 66, 100, 100)
    s[1] = torch.inf
    x[:], w[1] = x.abs() + 1, 1
    got, _ = run(lambda x, w, s: linear(x, w.half() * s), x, w, s)
    assert got[:, 1].isinf().all()
    close(got[:, 2:], x, (w.half() * s)[2:])


@pytest.mark.parametrize("form", ["channel", "groups"])
@pytest.mark.parametrize("dtype", [E4M3, I8])
def test_memory_is_the_bound(form: str, dtype: torch.dtype) -> None:
    """A matrix of 16 bits that is stored and read again took five to seven times as long."""
    x, w, s, z = drawn(dtype, torch.float16, 1, 1024, 1024)
    _, launch = run(lambda x, w, s, z: linear(x, FORMS[form](w, s, z)), x, w, s, z)
    assert launch.machine.report.cycles <= w.numel() / launch.machine.target.dram_bytes_per_cycle / 0.9


def test_many_rows_are_faster_than_in_16_bits() -> None:
    x, w, s, z = drawn(I8, torch.float16, 512, 1024, 1024)
    x, w = torch.zeros_like(x), torch.zeros_like(w)
    _, launch = run(lambda x, w, s, z: linear(x, FORMS["channel"](w, s, z)), x, w, s, z)
    _, wide = run(linear, x, w.half())
    assert launch.machine.report.cycles < wide.machine.report.cycles
