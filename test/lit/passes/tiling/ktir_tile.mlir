// Blocks of rows; the matmul becomes a loop over 3 output sticks and one over 2 blocks of K whose rows beyond 100 are masked.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=cores=3 --ktir-tile=rows=8 | FileCheck %s

// CHECK: ktir.level = "tiled"

// The first block of rows loads the weights block by block and leaves them in the scratchpad; its results are stored stick by stick.
// CHECK: %[[K:.*]] = arith.constant 100 : index
// CHECK: %[[B:.*]] = ktdp.construct_memory_view %{{.*}}, sizes: [3, %[[K]], 64], strides: [6400, 64, 1] {{.*}}masked
// CHECK: %[[KEPT:.*]] = scf.for %[[N:.*]] = %{{.*}} iter_args(%[[W:.*]] = %{{.*}}) -> (tensor<3x128x64xf16>) {
// CHECK: scf.for %[[KK:.*]] = %{{.*}} iter_args(%[[ACC:.*]] = %{{.*}}, %[[WW:.*]] = %[[W]]) -> (tensor<1x8x64xf32>, tensor<3x128x64xf16>) {
// CHECK: tensor.extract_slice %{{.*}}[%[[KK]], 0, 0] [1, 8, 64]
// CHECK: %[[R:.*]] = arith.muli %[[KK]], %{{.*}} : index
// CHECK: ktdp.construct_access_tile %[[B]][%[[N]], %[[R]], 0]
// CHECK: tensor.insert_slice %{{.*}} into %[[WW]][%[[N]], %[[R]], 0]
// CHECK: linalg.generic {{.*}} outs(%[[ACC]]
// CHECK: arith.truncf
// CHECK: ktdp.store

// CHECK: %[[START:.*]] = arith.constant 8 : index
// CHECK: %[[STEP:.*]] = arith.constant 8 : index
// CHECK: scf.for %[[I:.*]] = %[[START]] to %{{.*}} step %[[STEP]] {
// CHECK: ktdp.construct_access_tile %{{.*}}[0, %[[I]], 0]
// CHECK: ktdp.load {{.*}} -> tensor<2x8x64xf16>
// CHECK: scf.for %[[N:.*]] = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: scf.for %[[KK:.*]] = %{{.*}} iter_args(%[[ACC:.*]] = %{{.*}}) -> (tensor<1x8x64xf32>) {
// CHECK: tensor.extract_slice %[[KEPT]][%[[N]], %{{.*}}, 0] [1, 64, 64]
// CHECK: linalg.generic {{.*}} outs(%[[ACC]]
// CHECK: ktdp.store
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
