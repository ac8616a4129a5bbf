// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-upgrade | FileCheck %s
// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-upgrade | ktir-opt --split-input-file --verify-roundtrip -o /dev/null

#one = affine_set<(g) : (g == 0)>
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @spaces(
// CHECK-SAME: memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 2>>,
// CHECK-SAME: tuple<memref<4xf16, #ktdp.memory_space<global>>, !ktdp.tile_future<(tensor<4xf16>), groups = #{{.*}}>>,
// CHECK-SAME: attributes {note = [#ktdp.memory_space<ct_local>, "spyre
func.func @spaces(%a: memref<4xf16, #ktdp.spyre_memory_space<LX, core = 2>>,
    %b: tuple<memref<4xf16, #ktdp.spyre_memory_space<HBM>>, !ktdp.tile_future<tensor<4xf16>, groups = #one>>, %x: index)
    -> memref<4xf16, #ktdp.spyre_memory_space<LX, core = 2>>
    attributes {note = [#ktdp.spyre_memory_space<LX>, "spyre"]} {
  // CHECK: memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.spyre_memory_space<HBM>} : memref<4xf16>
  // CHECK: {coordinate_set = #{{.*}}, memory_space = #ktdp.memory_space<ct_local, ct_id = 0>} : memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 0>>
  %w = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {memory_space = #ktdp.spyre_memory_space<LX, core = 0>} : memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>
  // CHECK: cf.br ^bb1(%{{.*}} : memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 0>>)
  cf.br ^next(%w : memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>)
^next(%u: memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>):
  return %a : memref<4xf16, #ktdp.spyre_memory_space<LX, core = 2>>
}

// CHECK-NOT: spyre_memory_space
// CHECK-LABEL: func.func @forms(
func.func @forms(%x: memref<8x4xf16>, %i: memref<4xi32>, %p: tensor<4xf16>, %n: i32) -> i32 {
  // CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]]) %{{.*}}[ind(%{{.*}}[%[[A]]]), (%[[B]])]
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%a, %b) %x[ind(%i[%a]), %b] {
      variables_space_order = affine_map<(d0, d1) -> (d0, d1)>,
      variables_space_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
    } : memref<8x4xf16>, memref<4xi32> -> !ktdp.access_tile<4x4xindex>
  // CHECK: ktdp.inter_tile_produce producer_tiles_per_group = #{{.*}} -> <(tensor<4xf16>), groups = #{{.*}}> {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles : tensor<4xf16> -> !ktdp.tile_future<tensor<4xf16>, #one> {
  ^bb0(%g: index):
    ktdp.yield_partial %p : tensor<4xf16>
  }
  // CHECK: %[[BASE:.*]] = arith.constant -559038737 : i32
  // CHECK: %[[STRIDE:.*]] = arith.constant 4 : i32
  // CHECK: spyreop.idx32toaddr %{{.*}} base %[[BASE]] stride %[[STRIDE]]
  %d = spyreop.idx32toaddr %n base 0xDEADBEEF stride 4
  return %d : i32
}

// -----

// expected-error@+1 {{'#ktdp.spyre_memory_space<L0>' has no successor in the newest spelling}}
func.func private @none(memref<4xf16, #ktdp.spyre_memory_space<L0>>)
