"""Kernels that keep their grid, and kernels that write their operands, are calls in compiled programs: one launch, equal bits."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ktir.library
from ktir import config, lang
from ktir.device.autoload import register
from ktir.runtime import metrics

register()
sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from kernels import paged_attention, top_k  # noqa: E402  # pyright: ignore[reportMissingImports]

X = torch.randn(9, 100, generator=torch.Generator().manual_seed(0)).half()
DEVICES = ("cpu", "spyre")


@lang.kernel
def scaled(x, y, *, block=None):
    for rows in lang.blocks(x.shape[0], block):
        v = x[rows]
        y[rows] = v * 2 - v.max(-1, keepdims=True)


@ktir.library.operator("pinned::scaled", scaled[4])
def scaled_op(x: torch.Tensor, block: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


@lang.kernel
def sent(x, y, both):
    own = lang.buffer(x.shape[1], x.dtype)
    own[...] = x[lang.tile_id()]
    y[lang.tile_id()] = lang.shift(own[...])
    both[lang.tile_id()] = lang.all_reduce(own[...])


@ktir.library.operator("pinned::sent", sent[9])
def sent_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@lang.kernel
def put(cache, row, *, at):
    cache[at] = row[:]


@ktir.library.operator("pinned::put", put, mutates_args=("cache",))
def put_op(cache: torch.Tensor, row: torch.Tensor, at: int) -> None:
    pass


@lang.kernel
def stepped(a, b, x, y):
    for rows in lang.blocks(x.shape[0]):
        t = x[rows] * 2
        y[rows] = a[rows] + t
        a[rows] = t
        b[rows] = b[rows] + t


@ktir.library.operator("pinned::stepped", stepped[3], mutates_args=("a", "b"))
def stepped_op(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@lang.kernel
def counted(n, y):
    for rows in lang.blocks(n.shape[0]):
        y[rows] = n[rows] * 3


@ktir.library.operator("pinned::counted", counted[2])
def counted_op(n: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(n)


@ktir.library.operator("pinned::top_k", top_k[3])
def top_k_op(x: torch.Tensor, k: int = 3, block: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0], k), x.new_empty(x.shape[0], k, dtype=torch.int32)


@ktir.library.operator("pinned::paged", paged_attention[2])
def paged_op(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(q)


def between(c: torch.Tensor, x: torch.Tensor) -> Any:
    return scaled_op(x * 2).relu() + scaled_op(x + 1, 3), c - 1


def exchanged(c: torch.Tensor, x: torch.Tensor) -> Any:
    _, both = sent_op(x * 0.25)
    shifted, _ = sent_op(c + both)
    return shifted * 2


def written(c: torch.Tensor, x: torch.Tensor) -> Any:
    before = c + 1
    put_op(c, x[0] * 2, 1)
    put_op(c, x[1], 3)
    after = c * 2
    c.mul_(2)
    return before, after


def several(c: torch.Tensor, x: torch.Tensor) -> Any:
    t = x.clone()
    return stepped_op(c, t, x + 1) + t


def unused(c: torch.Tensor, x: torch.Tensor) -> Any:
    stepped_op(c, torch.zeros_like(x), x)
    return c * 2


def read_and_filled(c: torch.Tensor, x: torch.Tensor) -> Any:
    """What stands before the call reads an input, and then gives it another value."""
    before = x + c
    x[1:3].add_(x[4:6])
    return scaled_op(before), before


def of_a_view(c: torch.Tensor, x: torch.Tensor) -> Any:
    put_op(c[2:5], x[0], 1)
    put_op(c.T, x[:, 0], 1)
    return c + x


def of_a_value(c: torch.Tensor, x: torch.Tensor) -> Any:
    t = c * 1
    before = t + 1
    put_op(t, x[0], 1)
    return before, t


def of_itself(c: torch.Tensor, x: torch.Tensor) -> Any:
    """Copies, which torch takes out of the graph where nothing else writes to them."""
    put_op(c, c[0].clone(), 2)
    return stepped_op(c, x, c.clone())


def integers(c: torch.Tensor, x: torch.Tensor) -> Any:
    n = (x * 8).to(torch.int32)
    return counted_op(n + 1) - n, c + 1


def chosen(c: torch.Tensor, x: torch.Tensor) -> Any:
    values, indices = top_k_op(x * 2)
    return values + 1, indices * 2


def looked_up(c: torch.Tensor, x: torch.Tensor) -> Any:
    """Places that data decides: tables of them and integers are memory of the program's own."""
    pages = torch.cat([x, c, x * 2, c * 2])[:32, :64].reshape(4, 8, 64)
    table = torch.tensor([[1, 0, 2], [3, 2, 0]], dtype=torch.int32, device=x.device)
    lengths = torch.tensor([19, 11], dtype=torch.int32, device=x.device)
    return paged_op(x[:2, :64] * 0.5, pages, pages * 2, table, lengths) * 2


MODELS = [between, exchanged, written, several, unused, read_and_filled, of_a_view, of_a_value, of_itself, integers, chosen, looked_up]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("device", DEVICES)
def test_one_launch(model: Callable[..., Any], device: str, caplog: pytest.LogCaptureFixture) -> None:
    cache, x = X * 3, X.clone()
    expected = model(cache, x)  # in eager, where each kernel is a launch; the rest is exact in half precision
    for _ in range(2):
        c, y = (X * 3).to(device), X.clone().to(device)
        with torch.no_grad(), config.patch(verify_each=True):
            call = torch.compile(model, backend="ktir", dynamic=False, fullgraph=True)
            with metrics.counted() as launches:
                found = call(c, y)
        assert launches() == metrics.Launches(chip=1)
        for one, wanted in zip((*_listed(found), c, y), (*_listed(expected), cache, x), strict=True):
            assert torch.equal(one.cpu(), wanted)
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def _listed(found: Any) -> tuple[torch.Tensor, ...]:
    return (found,) if isinstance(found, torch.Tensor) else found


def test_program_of_several_kernels(tmp_path: Path) -> None:
    """A file whose entry calls kernels is one call, in which the kernels run in order."""
    text = """
#tile = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#order = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %t: index, %y: index) {
  call @half(%x, %t) : (index, index) -> ()
  call @half(%t, %y) : (index, index) -> ()
  return
}
func.func private @half(%x: index, %y: index) attributes {grid = [2]} {
  %i = ktdp.get_compute_tile_id : index
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %r = arith.muli %i, %c4 : index
  %a = ktdp.construct_memory_view %x, sizes: [8, 64], strides: [64, 1]
    {memory_space = #ktdp.memory_space<global>} : memref<8x64xf16>
  %b = ktdp.construct_memory_view %y, sizes: [8, 64], strides: [64, 1]
    {memory_space = #ktdp.memory_space<global>} : memref<8x64xf16>
  %p = ktdp.construct_access_tile %a[%r, %c0]
    {access_tile_set = #tile, access_tile_order = #order} : memref<8x64xf16> -> !ktdp.access_tile<4x64xindex>
  %q = ktdp.construct_access_tile %b[%r, %c0]
    {access_tile_set = #tile, access_tile_order = #order} : memref<8x64xf16> -> !ktdp.access_tile<4x64xindex>
  %v = ktdp.load %p : <4x64xindex> -> tensor<4x64xf16>
  %h = arith.constant dense<0.5> : tensor<4x64xf16>
  %w = arith.mulf %v, %h : tensor<4x64xf16>
  ktdp.store %w, %q : tensor<4x64xf16>, <4x64xindex>
  return
}
"""
    (tmp_path / "halves.mlir").write_text(text)

    @ktir.library.operator("pinned::quarter", tmp_path / "halves.mlir")
    def quarter_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty_like(x), torch.empty_like(x)

    def model(x: torch.Tensor) -> torch.Tensor:
        half, quarter = quarter_op(x + 1)
        return half - quarter * 4

    x = X[:8, :64].contiguous()
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(model, backend="ktir", dynamic=False, fullgraph=True)(x)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(found, (x + 1) / 2 - (x + 1) / 4 * 4)


def test_executor_runs_it_in_one_launch() -> None:
    c = X * 3
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(written, backend="ktir", dynamic=False, options={"engine": "ktir"})(c, X)
    assert launches() == metrics.Launches(executor=1)
    expected = written(own := X * 3, X)
    assert all(torch.equal(one, two) for one, two in zip((*found, c), (*expected, own), strict=True))


def test_exported(tmp_path: Path) -> None:
    """An exported model has the call, and compiles to one launch."""

    class Model(torch.nn.Module):
        forward = staticmethod(between)

    exported = torch.export.export(Model(), (X * 3, X))
    assert "pinned.scaled.default" in str(exported.graph)
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(exported.module(), backend="ktir", dynamic=False)(X * 3, X)
    assert launches() == metrics.Launches(chip=1)
    assert all(torch.equal(one, two) for one, two in zip(found, between(X * 3, X), strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_alone(device: str) -> None:
    """A graph that is one call has no kernel of the compiler's."""
    x = X.to(device)
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(lambda x: scaled_op(x), backend="ktir" if device == "cpu" else "spyre", dynamic=False)(x)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(found.cpu(), scaled_op(x).cpu())


@lang.kernel
def doubled(c, x, y):
    y[...] = c[:] + x[:]
    c[...] = c[:] * 2


@ktir.library.operator("pinned::doubled", doubled, mutates_args=("c",))
def doubled_op(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def read_again(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return doubled_op(c, x) + c


def twice(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y = doubled_op(c, x)
    return y + doubled_op(c, y) + c


@pytest.mark.parametrize("model", [read_again, twice])
def test_operand_that_is_read_and_written_and_read_again(model: Callable[..., torch.Tensor]) -> None:
    """Its values before the call are the caller's, though the kernel loads and stores by one access tile."""
    x = X.float()
    c, own = x * 3, x * 3
    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(model, backend="ktir", dynamic=False)(c, x)
    assert launches() == metrics.Launches(chip=1)
    assert torch.equal(found, model(own, x))
    assert torch.equal(c, own)
