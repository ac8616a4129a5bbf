// A matmul: weights are multicast, both loops appear in every unit that takes part, rows are clipped on the last core. Each block of weights
// has a slot of its own, so nobody waits before it is loaded; where the scratchpad has room for one block, the load waits until it was read.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-split-bodies --ktir-form-kernels --ktir-divide-work --ktir-tile --ktir-allocate-scratchpad --convert-ktir-to-spyre | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-split-bodies --ktir-form-kernels --ktir-divide-work --ktir-tile --ktir-allocate-scratchpad=lx-bytes=12000 --convert-ktir-to-spyre | FileCheck %s --check-prefix=SMALL

// CHECK: spyre.program
// CHECK: spyre.kernel
// CHECK-SAME: cores = 29
// CHECK: MNIL
// CHECK: spyre.move src
// CHECK-NEXT: spyre.sig
// CHECK-NEXT: spyre.loop
// CHECK-NEXT: spyre.loop
// CHECK-NEXT: spyre.move {{.*}} group = 0
// CHECK: spyre.sig
// CHECK: LXLU
// CHECK: spyre.push
// CHECK: PT
// CHECK: spyre.ldw
// CHECK: spyre.mm
// CHECK: spyre.pto
// CHECK: SFP
// CHECK: spyre.rep
// CHECK: spyre.vin
// CHECK: spyre.v1
// CHECK-SAME: round
// CHECK: spyre.vout
// SMALL: spyre.unit MNIL
// SMALL: spyre.loop trips = 2
// SMALL-NEXT: spyre.wait token = {{.*}} sender = LXLU
// SMALL-NEXT: spyre.move {{.*}} group = 0
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %w: index {ktir.name = "w", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [57, 100], strides: [100, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 99 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 99 >= 0)>} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %X = ktdp.load %tX : <57x100xindex> -> tensor<57x100xf16>
    %vW = ktdp.construct_memory_view %w, sizes: [100, 130], strides: [130, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 99 >= 0, d1 >= 0, -d1 + 129 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<100x130xf16>
    %tW = ktdp.construct_access_tile %vW[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 99 >= 0, d1 >= 0, -d1 + 129 >= 0)>} : memref<100x130xf16> -> !ktdp.access_tile<100x130xindex>
    %W = ktdp.load %tW : <100x130xindex> -> tensor<100x130xf16>
    %h_i = arith.constant 0.0 : f32
    %h_e = tensor.empty() : tensor<57x130xf32>
    %h_f = linalg.fill ins(%h_i : f32) outs(%h_e : tensor<57x130xf32>) -> tensor<57x130xf32>
    %h_d = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%X, %W : tensor<57x100xf16>, tensor<100x130xf16>) outs(%h_f : tensor<57x130xf32>) {
    ^bb0(%p: f16, %q: f16, %o: f32):
      %p1 = arith.extf %p : f16 to f32
      %q1 = arith.extf %q : f16 to f32
      %m1 = arith.mulf %p1, %q1 : f32
      %s = arith.addf %o, %m1 : f32
      linalg.yield %s : f32
    } -> tensor<57x130xf32>
    %h_h = tensor.empty() : tensor<57x130xf16>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%h_d : tensor<57x130xf32>) outs(%h_h : tensor<57x130xf16>) {
    ^bb0(%p: f32, %o: f16):
      %r = arith.truncf %p : f32 to f16
      linalg.yield %r : f16
    } -> tensor<57x130xf16>
    %vY = ktdp.construct_memory_view %y, sizes: [57, 130], strides: [130, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 129 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<57x130xf16>
    %tY = ktdp.construct_access_tile %vY[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 129 >= 0)>} : memref<57x130xf16> -> !ktdp.access_tile<57x130xindex>
    ktdp.store %h, %tY : tensor<57x130xf16>, <57x130xindex>
    return
  }
}
