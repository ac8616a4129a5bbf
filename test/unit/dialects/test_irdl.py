"""Our dialects and MLIR's own parser in a process that knows nothing of us: the C++ driver of the wheel, given our IRDL."""

import subprocess
from pathlib import Path

import pytest

from ktir.assembly import parse_module, print_module
from ktir.dialects.ktdp import Ktdp
from ktir.dialects.ktir import Ktir
from ktir.mlir import passmanager

DRIVER = Path(passmanager.__file__).parent / "_mlir_libs" / "torch-mlir-opt"

TEXT = """
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
!stick = tensor<2x64xf16, #ktir.layout<size = [2, 60], device = [2, 64], strides = [60, 1], dtype = f16>>
func.func @f(%x: index, %n: index) -> !stick attributes {ktir.work = #ktir.work<splits = [2], tile = [1]>} {
  %t = ktdp.get_compute_tile_id : index
  %v = ktdp.construct_memory_view %x, sizes: [%n, 64], strides: [64, 1] {
      coordinate_set = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>,
      ktir.rotate = #ktir.rotate<nbuf = 2, stride = 128>, masked, memory_space = #ktdp.memory_space<ct_local, ct_id = 1>
    } : memref<?x64xf16>
  %a = ktdp.construct_access_tile %v[%t * 2, 0] {access_tile_order = #id, access_tile_set = #box}
    : memref<?x64xf16> -> !ktdp.access_tile<2x64xindex>
  %l = ktdp.load %a : <2x64xindex> -> !stick
  ktdp.store %l, %a : !stick, <2x64xindex>
  return %l : !stick
}
"""


@pytest.mark.usefixtures("mlir")
def test_an_independent_parser_accepts_the_generic_form(tmp_path: Path) -> None:
    if not DRIVER.exists():
        pytest.skip("this wheel has no torch-mlir-opt")
    bodies = [str(d._mlir_module).removeprefix("module {").rstrip().removesuffix("}") for d in (Ktdp, Ktir)]
    irdl = tmp_path / "dialects.mlir"
    irdl.write_text("module {" + "".join(bodies) + "}")
    source = tmp_path / "in.mlir"
    module = parse_module(TEXT)
    source.write_text(module.operation.get_asm(print_generic_op_form=True))
    run = subprocess.run([DRIVER, f"--irdl-file={irdl}", "--verify-roundtrip", source], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    back = parse_module(run.stdout)
    assert print_module(back) == print_module(module)
