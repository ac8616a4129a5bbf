// RUN: ktir-opt %s --keep-names --cse | FileCheck %s
// RUN: ktir-opt %s --keep-names | ktir-opt --keep-names | FileCheck %s
// RUN: ktir-opt %s | FileCheck %s --check-prefix=NUMBERS
// RUN: ktir-opt %s --mlir-use-nameloc-as-prefix | FileCheck %s --check-prefix=LOCS
// RUN: ktir-opt %s --split-input-file --keep-names | FileCheck %s

// CHECK: func.func @f(%tile: !ktdp.access_tile<4xindex>, %bound: index
// CHECK: %given = ktdp.get_compute_tile_id : index
// CHECK: %grid:2 = ktdp.get_compute_tile_id : index, index
// CHECK: %data = ktdp.load %tile : <4xindex> -> tensor<4xf16>
// CHECK: ktdp.store %data, %tile
// NUMBERS: %0 = ktdp.get_compute_tile_id : index
// LOCS: %given = ktdp.get_compute_tile_id : index
// LOCS: %1 = ktdp.load %arg0
func.func @f(%tile: !ktdp.access_tile<4xindex>, %bound: index) -> (index, index, index) {
  %core = ktdp.get_compute_tile_id : index loc("given")
  %grid:2 = ktdp.get_compute_tile_id : index, index  // not %a = a name
  %data = ktdp.load %tile : <4xindex> -> tensor<4xf16>
  ktdp.store %data, %tile : tensor<4xf16>, <4xindex>
  return %core, %grid#0, %bound : index, index, index
}

// CHECK: func.func @loops(%n: index)
// CHECK: %total = scf.for %i = %lo to %n step %one iter_args(%sum = %lo)
// CHECK: %next = arith.addi %sum, %i
// CHECK: %end = scf.while (%left = %total)
func.func @loops(%n: index) -> index {
  %lo = arith.constant 0 : index
  %one = arith.constant 1 : index
  %total = scf.for %i = %lo to %n step %one iter_args(%sum = %lo) -> (index) {
    %next = arith.addi %sum, %i : index
    scf.yield %next : index
  }
  %end = scf.while (%left = %total) : (index) -> index {
    %more = arith.cmpi sgt, %left, %one : index
    scf.condition(%more) %left : index
  } do {
  ^bb0(%before: index):
    %after = arith.subi %before, %one : index
    scf.yield %after : index
  }
  return %end : index
}
