"""Columns, rows and numbers that a matmul makes and what reads them spreads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from combinations import each_once

from ktir.assembly import parse_module
from ktir.checking.stream.compare import check_package
from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.emulator.machine.control.control import control
from ktir.lowering.compile import compile_logical
from ktir.lowering.ktir_to_spyre import compute
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.tiling.plan import tile_facts
from ktir.target import DATASHEET

READERS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "column": lambda a, v: a * (a @ v[:, None]),
    "column of a vector": lambda a, v: a - (a @ v)[:, None] * v,
    "number": lambda a, v: v - a[0] * torch.dot(a[0], v),
    "number of a row": lambda a, v: a + v[None] @ v[:, None],
    "row": lambda a, v: a + v[None] @ a.t() @ a,
    "outer product": lambda a, v: (a @ v[:, None]) * v[None],
    "batch": lambda a, v: a[None] * torch.bmm(a[None], v[None, :, None]),
    "reduction": lambda a, v: (a - a @ v[:, None]).amax(-1),
    "function": lambda a, v: torch.relu(a @ v[:, None]) * a + v,
    "equal rows": lambda a, v: torch.relu(v.expand(2, -1) @ a) * v + a[:2],
    "sum of equal sums": lambda a, v: a + v.float().abs().expand(3, -1).sum(1).sqrt().sum(),
}


@pytest.mark.parametrize(("reader", "n"), each_once(READERS, [5, 70]))
def test_what_is_spread_has_eagers_value(reader: str, n: int) -> None:
    torch._dynamo.reset()
    torch.manual_seed(n)
    a, v = (torch.randn(*shape).mul(0.5).half() for shape in ((n, n), (n,)))
    expected = READERS[reader](a.double(), v.double())
    options: dict[str, Any] = {"fallback": "error"}
    actual = torch.compile(READERS[reader], backend="spyre", fullgraph=True, dynamic=False, options=options)(a, v)
    error = (actual.double() - expected).abs().max() / expected.abs().max()
    assert error < 2**-9


COLUMN = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d0, 0)>
#a = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 69 >= 0)>
#w = affine_set<(d0, d1) : (d0 >= 0, -d0 + 69 >= 0, d1 >= 0, -d1 >= 0)>
#g = #ktdp.memory_space<global>
module attributes {ktir.level = "logical"} {
func.func @f(%0: index {ktir.name = "a", ktir.role = "input", ktir.type = tensor<5x70xf16>},
             %1: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<70x1xf16>},
             %2: index {ktir.name = "z", ktir.role = "output", ktir.type = tensor<5x70xf16>}) {
  %va = ktdp.construct_memory_view %0, sizes: [5, 70], strides: [70, 1] {coordinate_set = #a, memory_space = #g} : memref<5x70xf16>
  %ta = ktdp.construct_access_tile %va[0, 0]
      {access_tile_order = #id, access_tile_set = #a} : memref<5x70xf16> -> !ktdp.access_tile<5x70xindex>
  %a = ktdp.load %ta : <5x70xindex> -> tensor<5x70xf16>
  %vw = ktdp.construct_memory_view %1, sizes: [70, 1], strides: [1, 1] {coordinate_set = #w, memory_space = #g} : memref<70x1xf16>
  %tw = ktdp.construct_access_tile %vw[0, 0]
      {access_tile_order = #id, access_tile_set = #w} : memref<70x1xf16> -> !ktdp.access_tile<70x1xindex>
  %w = ktdp.load %tw : <70x1xindex> -> tensor<70x1xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x1xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<5x1xf32>) -> tensor<5x1xf32>
  %p = linalg.matmul ins(%a, %w : tensor<5x70xf16>, tensor<70x1xf16>) outs(%o : tensor<5x1xf32>) -> tensor<5x1xf32>
  %x = tensor.empty() : tensor<5x70xf16>
  %r = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %p : tensor<5x70xf16>, tensor<5x1xf32>) outs(%x : tensor<5x70xf16>) {
  ^bb0(%s: f16, %t: f32, %u: f16):
    %ws = arith.extf %s : f16 to f32
    %m = arith.mulf %ws, %t : f32
    %n = arith.truncf %m : f32 to f16
    linalg.yield %n : f16
  } -> tensor<5x70xf16>
  %vz = ktdp.construct_memory_view %2, sizes: [5, 70], strides: [70, 1] {coordinate_set = #a, memory_space = #g} : memref<5x70xf16>
  %tz = ktdp.construct_access_tile %vz[0, 0]
      {access_tile_order = #id, access_tile_set = #a} : memref<5x70xf16> -> !ktdp.access_tile<5x70xindex>
  ktdp.store %r, %tz : tensor<5x70xf16>, <5x70xindex>
  return
}
}
"""


def _fuse_any(ops: Sequence[ir.Operation], contractions: Sequence[ir.Operation]) -> dict[ir.Operation, list[ir.Operation]]:
    """Every single reader of a matmul becomes its epilogue, whatever it spreads."""
    return {op: [next(iter(op.results[0].uses)).owner.operation] for op in contractions}


def _package() -> dict[str, bytes]:
    with context(), ir.Location.unknown():
        return compile_logical(parse_module(COLUMN, "column"), cores=2)


def test_sums_of_the_array_that_are_spread_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a plan that fuses what spreads a column."""
    monkeypatch.setattr(tile_facts, "epilogues_of", _fuse_any)
    with pytest.raises(Unsupported, match=r"column:\d+:\d+: error: 'linalg.generic' op reads operand \d .* element for element"):
        _package()


def test_the_check_of_a_stream_sees_sums_that_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: that plan, and a lowering that does not look."""
    monkeypatch.setattr(tile_facts, "epilogues_of", _fuse_any)
    monkeypatch.setattr(compute, "check_walk", lambda *_: None)
    made = read(_package())
    with pytest.raises(Unsupported, match=r"column:\d+:\d+: error: 'linalg.generic' op spreads sums"):
        check_package(made, control(made.program, DATASHEET))
