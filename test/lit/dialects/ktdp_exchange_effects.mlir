// RUN: ktir-opt %s --cse --canonicalize | FileCheck %s
// RUN: ktir-opt %s --loop-invariant-code-motion | FileCheck %s --check-prefix=LICM

// What MLIR's own passes may do with indirect tiles, distributed views and the exchange between tiles.

#one = affine_set<(g) : (g == 0)>
#first = affine_set<(i)[g] : (i - g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>

// A tile reads its index views when it is made: equal ones merge unless something is written between, unused ones go.
// CHECK-LABEL: func.func @indirect
// CHECK-NEXT: %[[A:.*]] = ktdp.construct_indirect_access_tile
// CHECK-NEXT: ktdp.store %{{.*}}, %[[A]]
// CHECK-NEXT: %[[C:.*]] = ktdp.construct_indirect_access_tile
// CHECK-NEXT: ktdp.store %{{.*}}, %[[A]]
// CHECK-NEXT: ktdp.store %{{.*}}, %[[C]]
// CHECK-NEXT: return
func.func @indirect(%x: memref<8xf16>, %v: memref<4xi32>, %t: tensor<4xf16>) {
  %a = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[ind(%v[%i])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<4xi32> -> !ktdp.access_tile<4xindex>
  %b = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[ind(%v[%i])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<4xi32> -> !ktdp.access_tile<4xindex>
  ktdp.store %t, %a : tensor<4xf16>, <4xindex>
  %c = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[ind(%v[%i])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<4xi32> -> !ktdp.access_tile<4xindex>
  ktdp.store %t, %b : tensor<4xf16>, <4xindex>
  ktdp.store %t, %c : tensor<4xf16>, <4xindex>
  %unused = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// CHECK-LABEL: func.func @distributed
// CHECK-NEXT: %[[D:.*]] = ktdp.construct_distributed_memory_view
// CHECK-NEXT: return %[[D]], %[[D]]
func.func @distributed(%a: memref<4xf16>, %b: memref<4xf16>) -> (memref<8xf16>, memref<8xf16>) {
  %0 = ktdp.construct_distributed_memory_view(%a, %b : memref<4xf16>, memref<4xf16>) : memref<8xf16>
  %1 = ktdp.construct_distributed_memory_view(%a, %b : memref<4xf16>, memref<4xf16>) : memref<8xf16>
  %unused = ktdp.construct_distributed_memory_view(%b, %a : memref<4xf16>, memref<4xf16>) : memref<8xf16>
  return %0, %1 : memref<8xf16>, memref<8xf16>
}

// Equal productions stay two, since a future is taken once; what nobody takes goes, with its delivery.
// CHECK-LABEL: func.func @exchange
// CHECK-COUNT-2: ktdp.inter_tile_produce
// CHECK-NOT: ktdp.inter_tile_produce
// CHECK: return
func.func @exchange(%x: tensor<4xf16>) -> (tensor<4xf16>, tensor<4xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4xf16>), groups = #one> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  %a = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : <(tensor<4xf16>), groups = #one> -> tensor<4xf16>
  %h = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4xf16>), groups = #one> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  %b = ktdp.inter_tile_consume(%h) consumer_tiles_per_group = #all : <(tensor<4xf16>), groups = #one> -> tensor<4xf16>
  %u = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4xf16>), groups = #one> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  %unused = ktdp.inter_tile_consume(%u) consumer_tiles_per_group = #all : <(tensor<4xf16>), groups = #one> -> tensor<4xf16>
  return %a, %b : tensor<4xf16>, tensor<4xf16>
}

// A store in the region keeps an unused production.
// CHECK-LABEL: func.func @store_inside
// CHECK: ktdp.inter_tile_produce
// CHECK: ktdp.store
func.func @store_inside(%x: tensor<4xf16>, %t: !ktdp.access_tile<4xindex>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4xf16>), groups = #one> {
  ^bb0(%g: index):
    ktdp.store %x, %t : tensor<4xf16>, <4xindex>
    ktdp.yield_partial %x : tensor<4xf16>
  }
  return
}

// An exchange in a loop happens in each trip; a runtime argument is the same in all.
// LICM-LABEL: func.func @loop
// LICM: ktdp.runtime_arg_extract
// LICM: scf.for
// LICM-NEXT: ktdp.construct_indirect_access_tile
// LICM-NEXT: ktdp.inter_tile_produce
// LICM: ktdp.inter_tile_reduce
func.func @loop(%r: !ktdp.runtime_arg<index>, %x: memref<8xf16>, %v: memref<4xi32>, %p: tensor<4xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %e = ktdp.runtime_arg_extract value from %r : <index> -> index
    %t = ktdp.construct_indirect_access_tile intermediate_variables(%j) %x[ind(%v[%j])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<4xi32> -> !ktdp.access_tile<4xindex>
    %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4xf16>), groups = #one> {
    ^bb0(%g: index):
      ktdp.yield_partial %p : tensor<4xf16>
    }
    %s = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%p : tensor<4xf16>) : <(tensor<4xf16>), groups = #one> -> tensor<4xf16> {
    ^bb0(%a: tensor<4xf16>, %b: tensor<4xf16>):
      %m = arith.maximumf %a, %b : tensor<4xf16>
      ktdp.yield_reduced %m : tensor<4xf16>
    }
    ktdp.store %s, %t : tensor<4xf16>, <4xindex>
  }
  return
}
