// RUN: ktir-opt %s --ktir-forward-stores | FileCheck %s

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#one = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#same = affine_map<(d0) -> (d0)>

// A loop that adds to one place carries the sum.
// CHECK-LABEL: func.func @sum(
// CHECK: %[[BEFORE:.*]] = ktdp.load
// CHECK: %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[SO_FAR:.*]] = %[[BEFORE]])
// CHECK: arith.addf %[[SO_FAR]], %{{.*}}
// CHECK-NOT: ktdp.store
// CHECK: scf.yield
// CHECK: ktdp.store %[[SUM]]
func.func @sum(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  scf.for %i = %c0 to %c3 step %c1 {
    %xv = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
    %xt = ktdp.construct_access_tile %xv[%t] {access_tile_order = #same, access_tile_set = #one} : memref<4xf32> -> !ktdp.access_tile<1xindex>
    %v = ktdp.load %xt : <1xindex> -> tensor<1xf32>
    %yv = ktdp.construct_memory_view %y, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
    %yt = ktdp.construct_access_tile %yv[%t] {access_tile_order = #same, access_tile_set = #one} : memref<4xf32> -> !ktdp.access_tile<1xindex>
    %a = ktdp.load %yt : <1xindex> -> tensor<1xf32>
    %s = arith.addf %a, %v : tensor<1xf32>
    ktdp.store %s, %yt : tensor<1xf32>, <1xindex>
  }
  return
}

// What was stored is what is loaded; a store that another one overwrites goes.
// CHECK-LABEL: func.func @again(
// CHECK: %[[V:.*]] = ktdp.load
// CHECK-NOT: ktdp.load
// CHECK-NOT: ktdp.store
// CHECK: %[[A:.*]] = arith.addf %[[V]], %[[V]]
// CHECK: %[[B:.*]] = arith.addf %[[A]], %[[A]]
// CHECK: ktdp.store %[[B]]
// CHECK-NOT: ktdp.store
func.func @again(%y: index) attributes {grid = [1]} {
  %c0 = arith.constant 0 : index
  %yv = ktdp.construct_memory_view %y, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %yt = ktdp.construct_access_tile %yv[%c0] {access_tile_order = #same, access_tile_set = #box} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %v = ktdp.load %yt : <4xindex> -> tensor<4xf32>
  %a = arith.addf %v, %v : tensor<4xf32>
  ktdp.store %a, %yt : tensor<4xf32>, <4xindex>
  %w = ktdp.load %yt : <4xindex> -> tensor<4xf32>
  %b = arith.addf %w, %w : tensor<4xf32>
  ktdp.store %b, %yt : tensor<4xf32>, <4xindex>
  return
}

// Of a masked view a load gives zeros where a store is clipped.
// CHECK-LABEL: func.func @masked(
// CHECK: ktdp.load
// CHECK: ktdp.store
// CHECK: ktdp.load
// CHECK: ktdp.store
func.func @masked(%y: index, %n: index) attributes {grid = [1]} {
  %c0 = arith.constant 0 : index
  %yv = ktdp.construct_memory_view %y, sizes: [%n], strides: [1] {coordinate_set = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf32>
  %yt = ktdp.construct_access_tile %yv[%c0] {access_tile_order = #same, access_tile_set = #box} : memref<?xf32> -> !ktdp.access_tile<4xindex>
  %v = ktdp.load %yt : <4xindex> -> tensor<4xf32>
  %a = math.exp %v : tensor<4xf32>
  ktdp.store %a, %yt : tensor<4xf32>, <4xindex>
  %w = ktdp.load %yt : <4xindex> -> tensor<4xf32>
  %b = arith.addf %w, %w : tensor<4xf32>
  ktdp.store %b, %yt : tensor<4xf32>, <4xindex>
  return
}
