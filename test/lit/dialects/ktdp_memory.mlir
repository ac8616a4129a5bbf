// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#cycle = affine_map<(d0, d1, d2) -> (d2, d0, d1)>
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 31 >= 0)>
#some = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 31 >= 0)>
#cube = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 3 >= 0)>

// CHECK-LABEL: func.func @old_spaces(%arg0: memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>, %arg1: index)
// CHECK-SAME: attributes {a = #ktdp.spyre_memory_space<unspecified>, b = #ktdp.spyre_memory_space<L0, core = 3>}
func.func @old_spaces(%a: memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>, %x: index)
    attributes {a = #ktdp.spyre_memory_space<unspecified>, b = #ktdp.spyre_memory_space<L0, core = 3>} {
  // CHECK: memory_space = #ktdp.spyre_memory_space<HBM>} : memref<8x32xf16>
  %v = ktdp.construct_memory_view %x, sizes: [8, 32], strides: [32, 1] {coordinate_set = #box, memory_space = #ktdp.spyre_memory_space<HBM>} : memref<8x32xf16>
  // The attribute says the same as the type, in another spelling. Without a coordinate set, a view owns all of its box.
  // CHECK: {coordinate_set = #{{.*}}, memory_space = #ktdp.memory_space<ct_local, ct_id = 2>} : memref<8x?xf16, #ktdp.spyre_memory_space<LX, core = 2>>
  %w = ktdp.construct_memory_view %x, sizes: [8, %x], strides: [32, 1] {memory_space = #ktdp.memory_space<ct_local, ct_id = 2>} : memref<8x?xf16, #ktdp.spyre_memory_space<LX, core = 2>>
  return
}

// CHECK-LABEL: func.func @distributed(
func.func @distributed(%a: memref<8x32xf16>, %b: memref<4x32xf16, #ktdp.memory_space<ct_local, ct_id = 1>>) {
  // CHECK-NEXT: ktdp.construct_distributed_memory_view(%arg0, %arg1 : memref<8x32xf16>, memref<4x32xf16, #ktdp.memory_space<ct_local, ct_id = 1>>) : memref<12x32xf16>
  // GENERIC: "ktdp.construct_distributed_memory_view"(%{{.*}}, %{{.*}}) : (memref<8x32xf16>, memref<4x32xf16, #ktdp.memory_space<ct_local, ct_id = 1>>) -> memref<12x32xf16>
  %c = ktdp.construct_distributed_memory_view (%a, %b : memref<8x32xf16>, memref<4x32xf16, #ktdp.memory_space<ct_local, ct_id = 1>>) : memref<12x32xf16>
  // CHECK-NEXT: ktdp.construct_distributed_memory_view() {note} : memref<12x32xf16>
  %d = ktdp.construct_distributed_memory_view() {note} : memref<12x32xf16>
  return
}

// CHECK-LABEL: func.func @indirect(
// CHECK-SAME: %[[X:.*]]: memref<99x32x64xf16>, %[[I:.*]]: memref<8x32xi32>, %[[J:.*]]: memref<32xi64>, %[[O:.*]]: index, %[[N:.*]]: index)
func.func @indirect(%x: memref<99x32x64xf16>, %i: memref<8x32xi32>, %j: memref<32xi64>, %o: index, %n: index) {
  %g:2 = ktdp.get_compute_tile_id : index, index
  // CHECK: %[[T:.*]] = ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]]) %[[X]][ind(%[[I]][%[[A]], %[[B]]]), (%[[B]] floordiv 2), (%[[B]] mod 2)] {variables_space_order = #{{.*}}, variables_space_set = #{{.*}}} : memref<99x32x64xf16>, memref<8x32xi32> -> !ktdp.access_tile<8x32xindex>
  // GENERIC: "ktdp.construct_indirect_access_tile"(%{{.*}}, %{{.*}}) ({
  // GENERIC-NEXT: ^bb0(%{{.*}}: index, %{{.*}}: index):
  // GENERIC-NEXT: "ktdp.region_terminator"() : () -> ()
  // GENERIC-NEXT: }) {operandSegmentSizes = array<i32: 1, 1, 0, 0>, per_dim_subscript_kinds = [true, false, false], per_dim_subscript_maps = [#{{.*}}, #{{.*}}, #{{.*}}], variables_space_order = #{{.*}}, variables_space_set = #{{.*}}} : (memref<99x32x64xf16>, memref<8x32xi32>) -> !ktdp.access_tile<8x32xindex>
  %t = ktdp.construct_indirect_access_tile intermediate_variables (%a, %b) %x[ind(%i[%a, %b]), (%b floordiv 2), (%b mod 2)]
      {variables_space_order = #id2, variables_space_set = #box} : memref<99x32x64xf16>, memref<8x32xi32> -> !ktdp.access_tile<8x32xindex>
  // CHECK: ktdp.load %[[T]] : <8x32xindex> -> tensor<8x32xf16>
  %l = ktdp.load %t : <8x32xindex> -> tensor<8x32xf16>
  // Captured values come before variables; the two results of one op are two values; a variable may hide a value of its name.
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]]) %[[X]][ind(%[[J]][%{{.*}}#0 + %[[B]]]), (%[[A]] + %[[O]] * 2), (%{{.*}}#1)] symbols(%[[N]]) {{.*}} : memref<99x32x64xf16>, memref<32xi64> -> !ktdp.access_tile<?x32xindex>
  %u = ktdp.construct_indirect_access_tile intermediate_variables(%a, %n) %x[ind(%j[%n + %g#0]), %a + %o * 2, (%g#1)] symbols(%n)
      {variables_space_order = #id2, variables_space_set = #some} : memref<99x32x64xf16>, memref<32xi64> -> !ktdp.access_tile<?x32xindex>
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]], %[[C:.*]]) %[[X]][(%[[A]]), (%[[B]]), (%[[C]])] {{.*}} -> !ktdp.access_tile<4x2x3xindex>
  %v = ktdp.construct_indirect_access_tile intermediate_variables(%a, %b, %c) %x[%a, %b, %c]
      {variables_space_order = #cycle, variables_space_set = #cube} : memref<99x32x64xf16> -> !ktdp.access_tile<4x2x3xindex>
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables() %[[X]][ind(%[[J]][3]), ind(%[[J]][%[[O]]]), (0)] {{.*}} : memref<99x32x64xf16>, memref<32xi64>, memref<32xi64> -> !ktdp.access_tile<index>
  %w = ktdp.construct_indirect_access_tile intermediate_variables() %x[ind(%j[3]), ind(%j[%o]), (0)]
      {variables_space_order = affine_map<() -> ()>, variables_space_set = affine_set<() : ()>} : memref<99x32x64xf16>, memref<32xi64>, memref<32xi64> -> !ktdp.access_tile<index>
  return
}

// CHECK-LABEL: func.func @runtime(%arg0: !ktdp.runtime_arg<index>, %arg1: !ktdp.runtime_arg<i32, granularity=4, upperbound=64>, %arg2: !ktdp.runtime_arg<bf16, upperbound=2>)
func.func @runtime(%a: !ktdp.runtime_arg<index>, %b: !ktdp.runtime_arg<i32, upperbound = 64, granularity=4>, %c: !ktdp.runtime_arg<bf16, upperbound=2>) {
  // CHECK-NEXT: ktdp.runtime_arg_extract value from %arg0 : <index> -> index
  // GENERIC: "ktdp.runtime_arg_extract"(%{{.*}}) {kind = 0 : i32} : (!ktdp.runtime_arg<index>) -> index
  %0 = ktdp.runtime_arg_extract value from %a : !ktdp.runtime_arg<index> -> index
  // CHECK-NEXT: ktdp.runtime_arg_extract value from %arg1 : <i32, granularity=4, upperbound=64> -> i32
  %1 = ktdp.runtime_arg_extract value from %b : <i32, granularity=4, upperbound=64> -> i32
  // CHECK-NEXT: ktdp.runtime_arg_extract granularity from %arg1 : <i32, granularity=4, upperbound=64> {note} -> index
  %2 = ktdp.runtime_arg_extract granularity from %b : <i32, granularity=4, upperbound=64> {note} -> index
  // CHECK-NEXT: ktdp.runtime_arg_extract upperbound from %arg2 : <bf16, upperbound=2> -> index
  %3 = "ktdp.runtime_arg_extract"(%c) <{kind = 2 : i32}> : (!ktdp.runtime_arg<bf16, upperbound=2>) -> index
  return
}

// As another implementation's printer writes them, with properties and its own segment sizes.
// CHECK-LABEL: func.func @foreign(
func.func @foreign(%x: memref<8x32xf16>, %i: memref<8xi32>, %p: tensor<4xf16>) {
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]]) %arg0[ind(%arg1[%[[A]]]), (%[[B]])]
  %0 = "ktdp.construct_indirect_access_tile"(%x, %i) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>, per_dim_subscript_kinds = [true, false],
      per_dim_subscript_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>], variables_space_order = #id2, variables_space_set = #box}> ({
    ^bb0(%a: index, %b: index):
      "ktdp.region_terminator"() : () -> ()
    }) : (memref<8x32xf16>, memref<8xi32>) -> !ktdp.access_tile<8x32xindex>
  // CHECK: ktdp.construct_distributed_memory_view(%arg0, %arg0 : memref<8x32xf16>, memref<8x32xf16>) {note} : memref<8x32xf16>
  %1 = "ktdp.construct_distributed_memory_view"(%x, %x) {note} : (memref<8x32xf16>, memref<8x32xf16>) -> memref<8x32xf16>
  return
}

// A view without dims has no subscripts.
// CHECK-LABEL: func.func @indirect_scalar(
func.func @indirect_scalar(%x: memref<f32>) {
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables() %arg0[] {variables_space_order = #{{.*}}, variables_space_set = #{{.*}}} : memref<f32>
  %0 = "ktdp.construct_indirect_access_tile"(%x) ({
    "ktdp.region_terminator"() : () -> ()
  }) {per_dim_subscript_kinds = [], per_dim_subscript_maps = [], variables_space_set = affine_set<() : (0 == 0)>,
      variables_space_order = affine_map<() -> ()>} : (memref<f32>) -> !ktdp.access_tile<index>
  return
}
