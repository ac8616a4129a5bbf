// RUN: ktir-opt %s --ktir-lift=way=lift | FileCheck %s
// RUN: ktir-opt %s --ktir-lift=way=auto --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ktir-opt %s --ktir-to-allocated=way=lift | FileCheck %s --check-prefix=ALLOCATED
// RUN: ktir-compile %s -o %t.package --way=auto --tolerance=0.01
// RUN: ktir-run %s --arg x=iota --arg y=zeros --engine=spyre --way=lift | FileCheck %s --check-prefix=CHIP
// RUN: not ktir-run %s --arg x=iota --arg y=zeros --engine=spyre --way=lifted 2>&1 | FileCheck %s --check-prefix=WAY

// A row per tile is the whole matrix; nobody sums, so no tolerance is asked for.

// CHECK: func.func @rows(%arg0: index {ktir.name = "arg0", ktir.role = "input", ktir.type = tensor<4x64xf16>}
// CHECK-NOT: grid
// CHECK: ktdp.load {{.*}} -> tensor<4x64xf16>
// CHECK: arith.addf {{.*}} : f16
// CHECK: ktdp.store {{.*}} : tensor<4x64xf16>, <4x64xindex>
// REMARK: kernel 'rows' is {{lifted from 4 tiles|pinned}}: {{.*}} cycles
// ALLOCATED: ktir.work
// CHIP: [0 2 4 6 8 10 ...] min 0 max 510
// WAY: '--way=lifted': expected pin or lift or auto

#row = affine_set<(r, c) : (r >= 0, -r >= 0, c >= 0, -c + 63 >= 0)>
#all = affine_set<(r, c) : (r >= 0, -r + 3 >= 0, c >= 0, -c + 63 >= 0)>
#order = affine_map<(r, c) -> (r, c)>
func.func @rows(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %vx = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [64, 1] {coordinate_set = #all, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %vy = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1] {coordinate_set = #all, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %ax = ktdp.construct_access_tile %vx[%t, 0] {access_tile_set = #row, access_tile_order = #order} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %ay = ktdp.construct_access_tile %vy[%t, 0] {access_tile_set = #row, access_tile_order = #order} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %l = ktdp.load %ax : <1x64xindex> -> tensor<1x64xf16>
  %s = arith.addf %l, %l : tensor<1x64xf16>
  ktdp.store %s, %ay : tensor<1x64xf16>, <1x64xindex>
  return
}
