// RUN: ktir-opt %s | FileCheck %s

// Generic form as drivers print it whose ops have properties; types and attributes may be pretty or not.

#set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#map = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @generic
// CHECK-SAME: attributes {my.acc = #ktir.acc<PT>, my.rotate = #ktir.rotate<nbuf = 2, stride = 64>}
"func.func"() <{function_type = (index) -> (), sym_name = "generic"}> ({
^bb0(%x: index):
  // CHECK: ktdp.construct_memory_view %arg0, sizes: [4], strides: [1] {coordinate_set = #{{.*}}, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16>
  %v = "ktdp.construct_memory_view"(%x) <{operandSegmentSizes = array<i32: 1, 0, 0>, coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>, static_sizes = array<i64: 4>, static_strides = array<i64: 1>}> : (index) -> memref<4xf16>
  // CHECK: ktdp.construct_access_tile %{{.*}}[%arg0] {access_tile_order = #{{.*}}, access_tile_set = #{{.*}}, note} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = "ktdp.construct_access_tile"(%v, %x) <{operandSegmentSizes = array<i32: 1, 1, 0>, access_tile_set = #set, access_tile_order = #map, base_map = #map}> {note} : (memref<4xf16>, index) -> !ktdp.access_tile<array<i64: 4>>
  // CHECK: ktdp.load %{{.*}} : <4xindex> -> tensor<4xf16>
  %l = "ktdp.load"(%a) : (!ktdp.access_tile<4xindex>) -> tensor<4xf16>
  "ktdp.store"(%l, %a) {} : (tensor<4xf16>, !ktdp.access_tile<4xindex>) -> ()
  // CHECK: ktdp.get_compute_tile_id : index
  %g = "ktdp.get_compute_tile_id"() <{}> : () -> index
  "func.return"() : () -> ()
}) {my.acc = #ktir.acc<"PT">, my.rotate = #ktir.rotate<2 : i64, 64 : i64>} : () -> ()
