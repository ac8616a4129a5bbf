"""What generated values must be less than where a program computes indices from them."""

from collections.abc import Callable

import pytest

from ktir.analysis.interface.parameters import parameters
from ktir.assembly import parse_module
from ktir.mlir import ir

SIZE = 23

PROGRAM = """
#all = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#rows = affine_set<(d0) : (d0 >= 0, -d0 + 22 >= 0)>
#id = affine_map<(d0) -> (d0)>
#g = #ktdp.memory_space<global>
func.func @f(%table: index, %index: index) {{
  %iv = ktdp.construct_memory_view %index, sizes: [3], strides: [1] {{coordinate_set = #all, memory_space = #g}} : memref<3xi64>
  %it = ktdp.construct_access_tile %iv[0] {{access_tile_order = #id, access_tile_set = #all}} : memref<3xi64> -> !ktdp.access_tile<3xindex>
  %values = ktdp.load %it : <3xindex> -> tensor<3xi64>
  %split = tensor.expand_shape %values [[0, 1]] output_shape [1, 3] : tensor<3xi64> into tensor<1x3xi64>
  %joined = tensor.collapse_shape %split [[0, 1]] : tensor<1x3xi64> into tensor<3xi64>
  %empty = tensor.empty() : tensor<3xi64>
  %computed = linalg.generic {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}}
      ins(%joined : tensor<3xi64>) outs(%empty : tensor<3xi64>) {{
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c4 = arith.constant 4 : i64
    %n = arith.constant 23 : i64
    %place = linalg.index 0 : index
    %i = arith.index_cast %place : index to i64
{body}
    linalg.yield %r : i64
  }} -> tensor<3xi64>
  %m = ktir.materialize %computed : tensor<3xi64> -> memref<3xi64>
  %tv = ktdp.construct_memory_view %table, sizes: [23], strides: [1] {{coordinate_set = #rows, memory_space = #g}} : memref<23xf16>
  %tt = ktdp.construct_indirect_access_tile intermediate_variables(%a) %tv[ind(%m[%a])]
      {{variables_space_set = #all, variables_space_order = #id}} : memref<23xf16>, memref<3xi64> -> !ktdp.access_tile<3xindex>
  %x = ktdp.load %tt : <3xindex> -> tensor<3xf16>
  return
}}
"""

WRAP = """%negative = arith.cmpi slt, %v, %c0 : i64
    %wrapped = arith.addi %v, %n : i64
    %r = arith.select %negative, %wrapped, %v : i64"""

BODIES: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "as it is": ("%r = arith.addi %x, %c0 : i64", lambda x, i: x),
    "wrapped": (f"%v = arith.addi %c0, %x : i64\n    {WRAP}", lambda x, i: x + SIZE if x < 0 else x),
    "wrapped from a place on": (
        f"%v = arith.addi %x, %i : i64\n    {WRAP}",
        lambda x, i: x + i + SIZE if x + i < 0 else x + i,
    ),
    "turned round": (
        """%kept = arith.cmpi sge, %x, %c0 : i64
    %wrapped = arith.addi %x, %n : i64
    %r = arith.select %kept, %x, %wrapped : i64""",
        lambda x, i: x if x >= 0 else x + SIZE,
    ),
    "scaled": ("%r = arith.muli %x, %c4 : i64", lambda x, i: 4 * x),
    "divided": ("%r = arith.floordivsi %x, %c4 : i64", lambda x, i: x // 4),
    "either": (
        """%odd = arith.cmpi eq, %i, %c0 : i64
    %more = arith.addi %x, %c4 : i64
    %r = arith.select %odd, %more, %x : i64""",
        lambda x, i: x + 4 if i == 0 else x,
    ),
    "remainder": ("%r = arith.remsi %x, %n : i64", lambda x, i: x % SIZE),
    "clamped": ("%r = arith.minsi %x, %c4 : i64", lambda x, i: min(x, 4)),
}


@pytest.mark.parametrize("name", BODIES)
def test_values_of_indices(name: str, mlir: ir.Context) -> None:
    body, compute = BODIES[name]
    (_, index), _ = parameters(parse_module(PROGRAM.format(body=body)), "f")
    refused = [x for x in range(10 * SIZE) if any(compute(x, i) >= SIZE for i in range(3))]
    assert index.below == (min(refused) if refused else None)
