// RUN: ktir-opt %s | FileCheck %s

// Several ops of ours on one line, in regions of other dialects.

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>
// CHECK-LABEL: func.func @regions
func.func @regions(%x: index, %c: i1) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %a = ktdp.construct_access_tile %v[%x] {access_tile_order = #id, access_tile_set = #box} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  // CHECK:      scf.if %arg1 {
  // CHECK-NEXT:   %[[L:.*]] = ktdp.load %{{.*}} : <4xindex> -> tensor<4xf16>
  // CHECK-NEXT:   ktdp.store %[[L]], %{{.*}} : tensor<4xf16>, <4xindex>
  // CHECK-NEXT: } else {
  // CHECK-NEXT:   ktdp.get_compute_tile_id : index
  // CHECK-NEXT: }
  scf.if %c { %l = ktdp.load %a : <4xindex> -> tensor<4xf16> ktdp.store %l, %a : tensor<4xf16>, <4xindex> } else {%t = ktdp.get_compute_tile_id : index}
  // CHECK: cf.br ^bb1(%{{.*}} : !ktdp.access_tile<4xindex>)
  // CHECK: ^bb1(%{{.*}}: !ktdp.access_tile<4xindex>):
  cf.br ^next(%a : !ktdp.access_tile<4xindex>)
^next(%b: !ktdp.access_tile<4xindex>): %m = ktdp.load %b : <4xindex> -> tensor<4xf16>
  return
}
