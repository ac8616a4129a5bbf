"""Rows that are longer than the scratchpad, and operands that are larger than what a core can address."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from combinations import each_once

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels, run_device_level
from ktir.context import context
from ktir.diagnostics import KtirError, Unsupported, remarks
from ktir.mlir import func, ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

Program = Callable[..., torch.Tensor]


def gelu_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A few ops, element by element."""
    return torch.nn.functional.gelu(x, approximate="tanh") + torch.relu(y)


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A number per row, and one per column."""
    return x * y + 1


def filled(x: torch.Tensor) -> torch.Tensor:
    """A tensor of one value."""
    return torch.full_like(x, 2.5)


def run(program: Program, shapes: Sequence[Sequence[int]], *, lx_bytes: int, cores: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The result at the allocated level, PyTorch's, and the LX that the kernels take."""
    torch.manual_seed(1)
    inputs = [torch.randn(*shape).half() for shape in shapes]
    wanted = program(*inputs).numpy()
    text = ktir.capture(program, *inputs)
    hosts = [*(t.numpy() for t in inputs), np.zeros_like(wanted)]
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(lx_bytes=lx_bytes, cores=cores).text())
        kernels = [op for op in module.body.operations if isinstance(op, func.FuncOp) and "ktir.lx_bytes" in op.attributes]
        used = [ir.IntegerAttr(k.attributes["ktir.lx_bytes"]).value for k in kernels]
        arrays = run_device_level(module, hosts[-text.count("ktir.role") :])  # an input that nothing reads is no argument
    return arrays[-1], wanted, used


LONG_ROWS: dict[str, tuple[Program, list[tuple[int, ...]]]] = {
    "one": (gelu_sum, [(20_000,), (20_000,)]),
    "three": (gelu_sum, [(3, 9_999), (3, 9_999)]),
    "a number per row": (scaled, [(5, 6_401), (5, 1)]),
    "one for all": (scaled, [(2, 3, 6_400), (6_400,)]),
    "filled": (filled, [(3, 9_000)]),
}


@pytest.mark.parametrize(("name", "cores"), each_once(LONG_ROWS, [1, 3, 32]))
def test_sticks_of_a_row_come_some_at_a_time(name: str, cores: int) -> None:
    """As much of a row as fits a small scratchpad."""
    program, shapes = LONG_ROWS[name]
    found, wanted, used = run(program, shapes, lx_bytes=12_288, cores=cores)
    assert max(used) <= 12_288
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2e-3 * np.abs(wanted).max()


@pytest.mark.long
@pytest.mark.parametrize("shape", [(1_000_000,), (3, 2_000_001)])
def test_millions_of_columns(shape: tuple[int, ...]) -> None:
    """One kernel, each element once, and every level and the machine bit for bit."""
    x = torch.randn(*shape).half()
    arrays = [x.numpy(), np.zeros(shape, np.float16)]
    levels = check_levels(ktir.capture(torch.relu, x), arrays)
    assert all(level.exact for level in levels)
    assert (levels[-1].arrays[1] == np.maximum(x.numpy(), 0)).all()


# What cannot be


def compiled(text: str) -> list[str]:
    """Remarks of the compilation of a logical program."""
    with context(), ir.Location.unknown(), remarks() as found:
        run_pipeline(parse_module(text, "program.mlir"), ToAllocated(verify=False).text())
    return [r.message for r in found]


def refusal(text: str) -> KtirError:
    """The error of a program that cannot be compiled."""
    with pytest.raises(KtirError) as error:
        compiled(text)
    return error.value


def test_a_row_that_is_reduced_must_fit() -> None:
    """The error names the op, its tensor, what it takes and what there is."""
    error = refusal(REDUCTION)
    assert isinstance(error, Unsupported)
    assert error.message == (
        "'linalg.generic' op of tensor<62500x1x64xf16> is in a kernel that needs 16000512 bytes of scratchpad for two rows (0, and 8000256 "
        f"per row), most at this op, but {DATASHEET.lx_planned_bytes} are available; the nearest supported form has shorter rows"
    )
    assert error.location == "program.mlir:10:10"


def test_a_softmax_of_a_long_row_runs_over_blocks() -> None:
    """4,000,000 columns in two rows: the row need not fit."""
    assert any(
        "softmax over blocks of " in r for r in compiled(ktir.capture(lambda x: torch.softmax(x, -1), torch.zeros(2, 4_000_000).half()))
    )


def test_parts_of_a_matmul_that_no_address_spans() -> None:
    """8192x32768x4096: rows of halves reach over 256 MiB, so they come in loops of their own, and weights are read for all of them."""
    text = "\n".join(compiled(matmul(8192, 32768, 4096)))
    assert "m/2 (4096), n/16 (4 x 64) on 32 cores" in text
    assert len(compiled(matmul(65536, 131072, 64))) > 0, "16 GiB, of which a core's part is more than an address spans in any division"


def view(name: str, shape: str, space: str, base: str) -> str:
    """A view of a whole matrix, and its tile."""
    rows, columns = shape.split("x")
    return (
        f"    %v{name} = ktdp.construct_memory_view %{base}, sizes: [{rows}, {columns}], strides: [{columns}, 1] "
        f"{{coordinate_set = #{space}, memory_space = #ktdp.memory_space<global>}} : memref<{shape}xf16>\n"
        f"    %t{name} = ktdp.construct_access_tile %v{name}[0, 0] {{access_tile_order = #map, access_tile_set = #{space}}} "
        f": memref<{shape}xf16> -> !ktdp.access_tile<{shape}xindex>\n"
    )


def box(name: str, rows: int, columns: int) -> str:
    return f"#{name} = affine_set<(d0, d1) : (d0 >= 0, -d0 + {rows - 1} >= 0, d1 >= 0, -d1 + {columns - 1} >= 0)>\n"


def matmul(m: int, k: int, n: int) -> str:
    """A matmul as logical KTIR: its operands are too large to be made."""
    a, b, c = f"{m}x{k}", f"{k}x{n}", f"{m}x{n}"
    arguments = ", ".join(
        f'%{name}: index {{ktir.name = "{name}", ktir.role = "{role}", ktir.type = tensor<{shape}xf16>}}'
        for name, role, shape in (("a", "input", a), ("b", "input", b), ("c", "output", c))
    )
    head = "#map = affine_map<(d0, d1) -> (d0, d1)>\n" + box("sa", m, k) + box("sb", k, n) + box("sc", m, n)
    body = view("a", a, "sa", "a") + f"    %x = ktdp.load %ta : <{a}xindex> -> tensor<{a}xf16>\n"
    body += view("b", b, "sb", "b") + f"    %y = ktdp.load %tb : <{b}xindex> -> tensor<{b}xf16>\n"
    body += f"    %z = arith.constant 0.0 : f32 %e = tensor.empty() : tensor<{c}xf32>\n"
    body += f"    %f = linalg.fill ins(%z : f32) outs(%e : tensor<{c}xf32>) -> tensor<{c}xf32>\n"
    body += f"    %p = linalg.matmul ins(%x, %y : tensor<{a}xf16>, tensor<{b}xf16>) outs(%f : tensor<{c}xf32>) -> tensor<{c}xf32>\n"
    body += f"    %o = tensor.empty() : tensor<{c}xf16>\n"
    body += '    %r = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} '
    body += f"ins(%p : tensor<{c}xf32>) outs(%o : tensor<{c}xf16>) {{\n    ^bb0(%in: f32, %out: f16):\n"
    body += f"      %h = arith.truncf %in : f32 to f16\n      linalg.yield %h : f16\n    }} -> tensor<{c}xf16>\n"
    body += view("c", c, "sc", "c") + f"    ktdp.store %r, %tc : tensor<{c}xf16>, <{c}xindex>\n    return\n"
    return head + f'module attributes {{ktir.level = "logical"}} {{\n  func.func @f({arguments}) {{\n{body}  }}\n}}\n'


REDUCTION = (
    "#map = affine_map<(d0, d1) -> (d0, d1)>\n#row = affine_map<(d0, d1) -> (d0)>\n#id = affine_map<(d0) -> (d0)>\n"
    + box("sx", 3, 4_000_000)
    + "#sy = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>\n"
    + 'module attributes {ktir.level = "logical"} { func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = '
    + 'tensor<3x4000000xf16>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<3xf32>}) {\n'
    + view("x", "3x4000000", "sx", "x")
    + "    %a = ktdp.load %tx : <3x4000000xindex> -> tensor<3x4000000xf16> %z = arith.constant 0.0 : f32 "
    + "%e = tensor.empty() : tensor<3xf32> %f = linalg.fill ins(%z : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>\n"
    + '    %s = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} '
    + "ins(%a : tensor<3x4000000xf16>) outs(%f : tensor<3xf32>) {\n    ^bb0(%in: f16, %out: f32):\n"
    + "      %w = arith.extf %in : f16 to f32\n      %r = arith.addf %out, %w : f32\n      linalg.yield %r : f32\n    } -> tensor<3xf32>\n"
    + "    %v = ktdp.construct_memory_view %y, sizes: [3], strides: [1] {coordinate_set = #sy, memory_space = #ktdp.memory_space<global>} "
    + ": memref<3xf32>\n    %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #sy} : memref<3xf32> "
    + "-> !ktdp.access_tile<3xindex>\n    ktdp.store %s, %t : tensor<3xf32>, <3xindex>\n    return\n  }\n}\n"
)
