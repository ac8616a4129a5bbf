// RUN: ktir-opt %s --split-input-file --verify-diagnostics
// RUN: sed 's/expected-warning/expected-error/' %s | ktir-opt - --split-input-file --verify-diagnostics --strict

#swap = affine_map<(d0, d1) -> (d1, d0)>
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
func.func @shape(%v: memref<8x8xf16>) {
  // expected-warning@+1 {{expects a tile of shape [4, 2], the extents of its set in its order, but got [2, 4]}}
  %0 = ktdp.construct_access_tile %v[0, 0] {access_tile_order = #swap, access_tile_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<2x4xindex>
  return
}

// -----

#twice = affine_map<(d0, d1) -> (d0, d0)>
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
func.func @order(%v: memref<8x8xf16>) {
  // expected-warning@+1 {{expects an order that is a permutation, but got '(d0, d1) -> (d0, d0)'}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %v[(%i), (%j)] {variables_space_order = #twice, variables_space_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<4x4xindex>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @reach(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  // expected-warning@+1 {{has partitions that reach up to 4 in dim 0 of size 8}}
  %d = ktdp.construct_distributed_memory_view(%v : memref<4xf16>) : memref<8xf16>
  return
}
