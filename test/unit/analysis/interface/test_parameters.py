"""What is found out about the arguments of a kernel from its text."""

from pathlib import Path

import numpy as np
import pytest

from ktir.analysis.interface.parameters import Parameter, Place, functions, parameters, roots
from ktir.assembly import parse_module
from ktir.checking import inputs
from ktir.mlir import ir

KERNEL = """
#b1 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#b2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 15 >= 0)>
#bn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#one = affine_set<(d0, d1) : (d0 == 0, d1 >= 0, -d1 + 15 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#g = #ktdp.memory_space<global>
func.func @inner(%table: index, %rows: index, %out: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %c64 = arith.constant 64 : index
  %skip = arith.muli %t, %c64 : index
  %here = arith.addi %out, %skip : index
  %tv = ktdp.construct_memory_view %table, sizes: [4, 16], strides: [16, 1] {coordinate_set = #b2, memory_space = #g} : memref<4x16xf16>
  %rv = ktdp.construct_memory_view %rows, sizes: [4], strides: [1] {coordinate_set = #b1, memory_space = #g} : memref<4xi32>
  %ov = ktdp.construct_memory_view %here, sizes: [4, 16], strides: [16, 1] {coordinate_set = #b2, memory_space = #g} : memref<4x16xf16>
  %it = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %tv[ind(%rv[%i]), (%j)]
      {variables_space_set = #b2, variables_space_order = #id2} : memref<4x16xf16>, memref<4xi32> -> !ktdp.access_tile<4x16xindex>
  %ot = ktdp.construct_access_tile %ov[0, 0] {access_tile_order = #id2, access_tile_set = #b2}
      : memref<4x16xf16> -> !ktdp.access_tile<4x16xindex>
  %x = ktdp.load %it : <4x16xindex> -> tensor<4x16xf16>
  ktdp.store %x, %ot : tensor<4x16xf16>, <4x16xindex>
  return
}
func.func @main(%a: index, %i: index, %o: index, %n: !ktdp.runtime_arg<index, granularity=8, upperbound=60>, %k: index, %s: f32) {
  %m = ktdp.runtime_arg_extract value from %n : <index, granularity=8, upperbound=60> -> index
  %place = arith.constant 96 : index
  %p = ktdp.construct_memory_view %place, sizes: [4], strides: [1] {coordinate_set = #b1, memory_space = #g} : memref<4xf32>
  %sum = arith.addi %a, %k : index
  %dyn = ktdp.construct_memory_view %sum, sizes: [%m], strides: [1] {coordinate_set = #bn, masked, memory_space = #g} : memref<?xf16>
  %twice = arith.muli %k, %k : index
  call @inner(%a, %i, %o) : (index, index, index) -> ()
  return
}
"""


@pytest.fixture
def kernel(mlir: ir.Context) -> ir.Module:
    return parse_module(KERNEL)


def test_functions(kernel: ir.Module) -> None:
    assert list(functions(kernel)) == ["inner", "main"]
    assert roots(kernel) == ["main"]


def test_views_give_shapes_and_roles(kernel: ir.Module) -> None:
    found, places = parameters(kernel, "inner", names={0: "table", 1: "rows"})
    assert found == [
        Parameter(0, "table", "f16", "input", (4, 16), views=(((4, 16), (16, 1)),)),
        Parameter(1, "rows", "i32", "input", (4,), below=4, views=(((4,), (1,)),)),
        Parameter(2, "arg2", "f16", "output", (256,), views=(((4, 16), (16, 1)),)),  # tile t writes 64 elements from 64 t on
    ]
    assert places == []


def test_calls_numbers_and_addresses(kernel: ir.Module) -> None:
    found, places = parameters(kernel, "main")
    a, i, o, n, k, s = found
    assert (a.shape, a.depends) == (None, ("arg3", "arg4"))
    assert (i.below, i.role, o.role, o.shape) == (4, "input", "output", (256,))
    assert (n.role, n.most, n.granularity, n.is_buffer) == ("number", 60, 8, False)
    assert (k.role, k.element, s.role, s.element) == ("number", "index", "number", "f32")
    assert places == [Place(96, "f32", "input", (4,), views=(((4,), (1,)),))]


def test_given_numbers_decide_shapes(kernel: ir.Module) -> None:
    (a, *_), _ = parameters(kernel, "main", numbers={"arg3": 56, "arg4": 100})
    assert a.shape == (156,)
    assert a.depends == ()


def test_generated_values_make_sense(kernel: ir.Module) -> None:
    found, _ = parameters(kernel, "main", numbers={"arg3": 56, "arg4": 100})
    rng = np.random.default_rng(0)
    assert inputs.number(rng, found[3]) == 56
    assert inputs.number(rng, found[4]) is None
    number = inputs.number(rng, found[5])
    assert number is not None
    assert 0 < number <= 1
    rows = inputs.generate(rng, "i32", (4,), found[1].below)
    assert sorted(rows.tolist()) == [0, 1, 2, 3]
    assert inputs.generate(rng, "i32", (400,), 4).max() == 3
    for element, dtype in inputs.DTYPES.items():
        array = inputs.generate(np.random.default_rng(1), element, (3, 5))
        assert (array.dtype.name, array.shape) == (dtype, (3, 5))
        assert inputs.generate(rng, element, ()).shape == ()
        again = inputs.generate(np.random.default_rng(1), element, (3, 5))
        assert array.tobytes() == again.tobytes()
        if element in inputs.FLOATS:
            assert np.isfinite(inputs.readable(array, element)).all()


def test_captured_programs_say_all_of_their_arguments(mlir: ir.Context) -> None:
    for path in sorted((Path(__file__).parents[2] / "lit" / "lowering" / "inductor").glob("*.mlir")):
        module = parse_module(path.read_text())
        found, places = parameters(module, *roots(module))
        assert places == []
        assert all(p.shape is not None and p.role in ("input", "output", "input_output") for p in found)
