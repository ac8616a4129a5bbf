// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --mlir-print-local-scope | FileCheck %s --check-prefix=LOCAL

// Maps of subscripts are not attributes of the printed text: no alias may be left over for them, and no gap in the numbers.

// CHECK-NOT: affine_map<(d0) -> (d0, 0)>
// CHECK: #map = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-NEXT: #map1 = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-NEXT: #set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
// CHECK-NEXT: module
// LOCAL-NOT: #map
// LOCAL: ktdp.construct_access_tile %{{.*}}[%arg0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>} : memref<4x4xf16> -> !ktdp.access_tile<4x4xindex>
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4, 4], strides: [4, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  // CHECK: {access_tile_order = #map, access_tile_set = #set}
  %a = ktdp.construct_access_tile %v[%x, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = #box} : memref<4x4xf16> -> !ktdp.access_tile<4x4xindex>
  %b = ktdp.construct_access_tile %v[%x, 0] {access_tile_order = affine_map<(d0, d1) -> (d1, d0)>, access_tile_set = #box, note = "#map2"} : memref<4x4xf16> -> !ktdp.access_tile<4x4xindex>
  // CHECK: {access_tile_order = #map1, access_tile_set = #set, note = "#map2"}
  return
}
