// RUN: ktir-opt %s --cse --canonicalize | FileCheck %s
// RUN: ktir-opt %s --loop-invariant-code-motion | FileCheck %s --check-prefix=LICM

// Views and tiles are pure, loads read, stores write: what MLIR's own passes may do with them.

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @reads
// CHECK: %[[V:.*]] = ktdp.construct_memory_view
// CHECK-NEXT: %[[T:.*]] = ktdp.construct_access_tile
// CHECK-NEXT: %[[A:.*]] = ktdp.load %[[T]]
// CHECK-NEXT: ktdp.store %[[A]], %[[T]]
// CHECK-NEXT: %[[B:.*]] = ktdp.load %[[T]]
// CHECK-NEXT: return %[[A]], %[[A]], %[[B]]
func.func @reads(%x: index) -> (tensor<4xf16>, tensor<4xf16>, tensor<4xf16>) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %w = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %u = ktdp.construct_access_tile %w[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %t : <4xindex> -> tensor<4xf16>
  %same = ktdp.load %u : <4xindex> -> tensor<4xf16>
  ktdp.store %a, %u : tensor<4xf16>, <4xindex>
  %b = ktdp.load %t : <4xindex> -> tensor<4xf16>
  %unused = ktdp.load %t : <4xindex> -> tensor<4xf16>
  return %a, %same, %b : tensor<4xf16>, tensor<4xf16>, tensor<4xf16>
}

// LICM-LABEL: func.func @loop
// LICM: ktdp.construct_memory_view
// LICM-NEXT: ktdp.construct_access_tile
// LICM-NEXT: scf.for
// LICM-NEXT: ktdp.load
// LICM-NEXT: ktdp.store
func.func @loop(%x: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    %a = ktdp.load %t : <4xindex> -> tensor<4xf16>
    ktdp.store %a, %t : tensor<4xf16>, <4xindex>
  }
  return
}
