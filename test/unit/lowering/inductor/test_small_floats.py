"""Floats of one byte beyond weights: values, conversions, copies and caches. PyTorch is the oracle, of conversions on all codes."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.assembly import parse_module, print_module
from ktir.checking.levels import check_levels, run_device_level
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.dialects.module_level import Level
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime import executable
from ktir.runtime.memory.transfer import array_of

pytestmark = pytest.mark.usefixtures("on_chip")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SMALL = [E4M3, E5M2]


def run(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> torch.Tensor:
    """What the chip makes of it, in one launch."""
    torch._dynamo.reset()
    with executable.recorded() as launches, torch.no_grad():
        got = torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"})(*inputs)
    assert len(launches) == 1
    return got


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bit for bit but for NaN."""
    assert got.dtype == want.dtype
    a, b = got.float(), want.float()
    assert ((a == b) & (a.signbit() == b.signbit()) | (a.isnan() & b.isnan())).all()


def codes(dtype: torch.dtype) -> torch.Tensor:
    """All values of a type of one or two bytes."""
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype).reshape(4, 64)
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).reshape(256, 256)


@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16, torch.float32])
def test_every_code_widens(small: torch.dtype, wide: torch.dtype) -> None:
    same(run(lambda x: x.to(wide), codes(small)), codes(small).to(wide))


@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16])
def test_every_code_narrows(small: torch.dtype, wide: torch.dtype) -> None:
    """Saturated, or infinite, as PyTorch does it."""
    same(run(lambda x: x.to(small), codes(wide)), codes(wide).to(small))


@pytest.mark.parametrize("small", SMALL)
def test_f32_beside_each_tie_narrows(small: torch.dtype) -> None:
    values = codes(small).float().flatten()
    values = values[values.isfinite()].sort().values
    ties = (values[1:] + values[:-1]) / 2
    some = torch.cat([ties, ties.nextafter(torch.tensor(torch.inf)), ties.nextafter(-torch.tensor(torch.inf))])
    x = torch.cat([some, torch.tensor([463.9, 464, 464.1, 61439, 61440, 1e30, torch.inf, torch.nan, 1e-40, -0.0])])
    x = torch.cat([x, -x])
    same(run(lambda x: x.to(small), x), x.to(small))


@pytest.mark.parametrize("small", SMALL)
def test_products_round_once(small: torch.dtype) -> None:
    """As PyTorch's own: in f32, then to the type."""
    x = codes(small)[:, torch.randperm(64, generator=torch.Generator().manual_seed(1))]
    same(run(lambda x, y: x * y, codes(small), x), codes(small) * x)


@pytest.mark.parametrize("small", SMALL)
def test_a_rounding_between_ops(small: torch.dtype) -> None:
    x = torch.linspace(-30, 30, 5 * 70).reshape(5, 70).half()
    same(run(lambda x: (x.to(small).half() * 3 + x).to(small), x), (x.to(small).half() * 3 + x).to(small))


@pytest.mark.parametrize("small", SMALL)
@pytest.mark.parametrize("f", [lambda x: x.t().contiguous(), lambda x: torch.cat([x, x[1:]]), lambda x: x[:, 3:9].clone()])
def test_moves(f: Callable[[torch.Tensor], torch.Tensor], small: torch.dtype) -> None:
    """Bits of NaN too."""
    x = codes(small)
    assert torch.equal(run(f, x).view(torch.uint8), f(x).contiguous().view(torch.uint8))


BITS = {torch.int8: SMALL, torch.uint8: SMALL, torch.int16: [torch.float16, torch.bfloat16]}


@pytest.mark.parametrize(("whole", "real"), [(i, f) for i, floats in BITS.items() for f in floats])
def test_bits_are_read_as_another_type(whole: torch.dtype, real: torch.dtype) -> None:
    """Codes that are given, of any float; and those of numbers that are rounded to one."""
    x = codes(real)
    same(run(lambda x: x.view(real).float() * 1, x.view(whole)), x.float())
    numbers = torch.cat([x.float().nan_to_num(3.0), torch.linspace(-500, 500, 256).reshape(-1, x.shape[1])])
    assert torch.equal(run(lambda x: x.to(real).view(whole) + 0, numbers), numbers.to(real).view(whole))
    assert torch.equal(run(lambda x: x.view(whole) + 0, x), x.view(whole))


def test_magnitudes() -> None:
    """As PyTorch has them: -0 stays that."""
    for dtype in (E4M3, E5M2):
        same(run(lambda x: x.abs(), codes(dtype)), codes(dtype).abs())


def test_a_choice() -> None:
    x, y = codes(E4M3), codes(E4M3).flip(0).contiguous()
    same(run(lambda x, y: torch.where(x.half() > 1, x, y), x, y), torch.where(x.half() > 1, x, y))


def test_a_cache_is_written_in_place() -> None:
    """A step of a server: a row is rounded into a cache of one byte, which attention then reads as halves."""

    def step(cache: torch.Tensor, row: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        cache[:, 5:6] = row.to(E4M3)
        return torch.softmax(q @ cache.half().transpose(1, 2), -1)

    draw = torch.Generator().manual_seed(2)
    cache = torch.randn(2, 16, 64, generator=draw).to(E4M3)
    row, q = (torch.randn(2, 1, 64, generator=draw).half() for _ in range(2))
    wanted = cache.clone()
    want = step(wanted, row, q)
    got = run(step, cache, row, q)
    same(cache, wanted)
    torch.testing.assert_close(got, want, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(("small", "shape"), [(E4M3, (2, 130, 33)), (E5M2, (3, 70, 40)), (E4M3, (4, 512, 64))])
def test_a_cache_takes_a_byte_each(small: torch.dtype, shape: tuple[int, int, int]) -> None:
    """In the memory of the program, and at every level from the one on that has layouts. A step moves half of what one of f16 moves."""

    def step(cache: torch.Tensor, row: torch.Tensor, q: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache[:, at] = row.to(cache.dtype)
        return torch.softmax(q @ cache.half().transpose(1, 2), -1) @ cache.half()

    draw = torch.Generator().manual_seed(2)
    full = torch.randn(shape, generator=draw)
    row, q = (torch.randn(shape[0], 1, shape[2], generator=draw).half() for _ in range(2))
    row[0, 0, :4] = torch.tensor([torch.nan, torch.inf, -1000, -0.0]).half()
    at, cycles, cache = torch.tensor([5]), {}, full
    for dtype in (torch.float16, small):
        cache, wanted = full.to(dtype), full.to(dtype)
        want = step(wanted, row, q, at)
        torch._dynamo.reset()
        with executable.recorded() as launches, torch.no_grad():
            got = torch.compile(step, backend="spyre", dynamic=False, options={"fallback": "error"})(cache, row, q, at)
        same(cache, wanted)
        torch.testing.assert_close(got, want, rtol=2e-3, atol=4e-3, equal_nan=True)
        machine = launches[-1].machine
        cycles[dtype] = sum(kernel.cycles for kernel in machine.report.kernels)
        (held,) = (a for a in machine.program.arguments if a.role == "input_output")
        assert held.sticks == -(-full.numel() * dtype.itemsize // 128)
    if full.numel() > 2**16:
        assert cycles[small] < 0.7 * cycles[torch.float16]
    text = str(ktir.capture(step, full.to(small), row, q, at))
    given = {"arg0_1": row, "arg1_1": full.to(small), "arg2_1": at, "arg3_1": q}
    arrays = [array_of(given.get(name, torch.zeros_like(row))).copy() for name in re.findall(r'ktir.name = "(\w+)"', text)]
    found = device_levels(text, arrays)
    assert len(found) == 8
    for level in found:
        assert any(a.tobytes() == array_of(cache).tobytes() for a in level)
    for level in found[-4:]:  # from the tiled one on
        assert [a.tobytes() for a in level] == [a.tobytes() for a in found[-1]]


def device_levels(text: str, arrays: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The arrays after each level that has layouts, and after the stream in both modes."""
    levels: list[ir.Module] = []
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(text), cores=4, observe=lambda _, m: levels.append(parse_module(print_module(m))))
        found = [run_device_level(m, arrays) for m in levels if (level := Level.of(m)) and not level.of_host]
    run = executable.Executable(package := read(files))
    assert not check_package(package, run.machine.trace)
    for mode in ("tape", "step"):
        found.append([a.copy() for a in arrays])
        run(*found[-1], mode=mode)
    return found


def test_on_the_device() -> None:
    x = codes(torch.float16)
    torch._dynamo.reset()
    with executable.recorded() as launches:
        got = torch.compile(lambda x: x.to(E4M3), dynamic=False, options={"fallback": "error"})(x.to("spyre"))
        back = torch.compile(lambda x: x.half() * 2, dynamic=False, options={"fallback": "error"})(got)
    assert len(launches) == 2
    same(got.cpu(), x.to(E4M3))
    same(back.cpu(), x.to(E4M3).half() * 2)


UNCOMPILED: dict[str, Callable[..., torch.Tensor]] = {
    "cat": lambda x: torch.cat([x, x], 1),
    "repeat": lambda x: x.repeat(2, 1),
    "index": lambda x: x[torch.tensor([1, 2], device=x.device)],
    "written": lambda x: x.clone().index_put_((torch.tensor([1, 2], device=x.device),), x[:2]),
    "abs": torch.abs,
    "equal": lambda x: x == 2,
    "whole": lambda x: torch.where(x.half().isfinite(), x.half(), 0).to(torch.int32),
    "other": lambda x: x.to(E4M3 if x.dtype == E5M2 else E5M2),
}


@pytest.mark.parametrize("small", SMALL)
def test_operators_outside_of_graphs(small: torch.dtype) -> None:
    x = torch.where(codes(small).float().isfinite(), codes(small).float(), 3).to(small)
    for f in UNCOMPILED.values():
        same(f(x.to("spyre")).cpu(), f(x))
    a, b, one = x, x[:1].expand(16, 64), torch.ones(())
    got = torch.ops.aten._scaled_mm(a.to("spyre"), b.to("spyre").t(), one.to("spyre"), one.to("spyre"), out_dtype=torch.float32).cpu()
    exact, sums = a.double() @ b.double().t(), a.double().abs() @ b.double().abs().t()
    assert ((got.double() - exact).abs() <= 2 * 2.0**-24 * sums).all()


def test_every_level_has_the_same_bits() -> None:
    """Of roundings inside of a program: levels below the logical one hold arguments of one byte as float16."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.to(E4M3).half() + x.to(E5M2).half()).to(E5M2).half()

    x = torch.linspace(-600, 600, 3 * 70).reshape(3, 70).half()
    with torch.no_grad():
        text = str(ktir.capture(f, x))
    *_, tape, step = check_levels(text, [x.numpy(), np.zeros((3, 70), np.float16)], cores=2)
    same(torch.from_numpy(tape.arrays[1]), f(x))
    assert (tape.arrays[1] == step.arrays[1]).all()
