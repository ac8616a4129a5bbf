"""The price of what was really made, against the emulated machine: the same bytes, and nearly the same cycles."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from combinations import each_once
from logical_programs import gated, linear

from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost.program import kernel_work
from ktir.emulator.machine import Machine
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET, PRESETS, Target

SMALL = {path.stem: path.read_text() for path in sorted((Path(__file__).parents[2] / "lit" / "lowering" / "inductor").glob("*.mlir"))}
SCAN = """
#map = affine_map<(d0, d1) -> (d0, d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 32 >= 0, d1 >= 0, -d1 + 129 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<33x130xf32>},
    %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<33x130xf32>}) {
    %0 = ktdp.construct_memory_view %x, sizes: [33, 130], strides: [130, 1] {GLOBAL} : memref<33x130xf32>
    %1 = ktdp.construct_access_tile %0[0, 0] {WHOLE} : memref<33x130xf32> -> !ktdp.access_tile<33x130xindex>
    %2 = ktdp.load %1 : <33x130xindex> -> tensor<33x130xf32>
    %3 = ktir.scan %2 dimension = 1 : tensor<33x130xf32> -> tensor<33x130xf32> {
    ^bb0(%a: f32, %b: f32):
      %6 = arith.addf %a, %b : f32
      ktir.yield %6 : f32
    }
    %4 = ktdp.construct_memory_view %y, sizes: [33, 130], strides: [130, 1] {GLOBAL} : memref<33x130xf32>
    %5 = ktdp.construct_access_tile %4[0, 0] {WHOLE} : memref<33x130xf32> -> !ktdp.access_tile<33x130xindex>
    ktdp.store %3, %5 : tensor<33x130xf32>, <33x130xindex>
    return
  }
}
""".replace("{GLOBAL}", "{coordinate_set = #set, memory_space = #ktdp.memory_space<global>}").replace(
    "{WHOLE}", "{access_tile_order = #map, access_tile_set = #set}"
)
"""Between its steps few columns of f32 are moved, whose lanes lie in the first of two sticks."""
LARGE = {
    "few lanes": SCAN,
    "one row": linear(1, 512, 1024).text(),
    "rows and columns": linear(128, 512, 2048).text(),
    "uneven": linear(70, 300, 2500).text(),
    "rows only": linear(512, 256, 256).text(),
    "three matmuls": gated(40, 256, 704).text(),
}


def machine(text: str, target: Target) -> Machine:
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(32))
        return Machine(lower_program(module), target)


@pytest.mark.parametrize(("name", "preset"), [*each_once(SMALL, PRESETS), *itertools.product(LARGE, PRESETS)])
def test_bytes_are_exact_and_cycles_are_near(name: str, preset: str) -> None:
    target = PRESETS[preset]
    made = machine((SMALL | LARGE)[name], target)
    for kernel, found in zip(made.program.kernels, made.report.kernels, strict=True):
        work = kernel_work(kernel, target)
        assert sum(x.moved for x in work.transfers if x.reads) == found.dram_read
        assert sum(x.moved for x in work.transfers if not x.reads) == found.dram_written
        # a kernel of a few hundred cycles is made of latencies, which the model adds up roughly
        low, high = (0.9, 1.1) if target is DATASHEET and name in LARGE and found.cycles > 2000 else (0.65, 1.35)
        assert low < work.cost.cycles / found.cycles < high


def test_multiplications() -> None:
    (kernel,) = machine(LARGE["rows only"], DATASHEET).program.kernels
    work = kernel_work(kernel, DATASHEET)
    assert work.multiplications == 512 * 256 * 256, "512 rows divide over 32 cores and two corelets: no row is dead"
    assert work.flops - 2 * work.multiplications == work.vector_ops == 512 * 256, "a bias is added; the word that adds it rounds"
