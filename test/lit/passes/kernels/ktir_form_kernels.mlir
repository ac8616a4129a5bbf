// h = x @ a; y = h @ h^T: the second operand needs all rows of h, so a second kernel starts and h goes through the pool.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: ktir.name = "pool0", ktir.role = "pool"
// CHECK: call @forward_kernel0
// CHECK-NEXT: call @forward_kernel1
// CHECK-NEXT: return
// CHECK-LABEL: func.func @forward_kernel0(
// CHECK-SAME: ktir.rows = array<i64: 57>
// CHECK: ktdp.store
// CHECK-LABEL: func.func @forward_kernel1(
// CHECK-SAME: ktir.rows = array<i64: 57>
// CHECK: ktdp.load
// CHECK: tensor.pad {{.*}} low[0, 0, 0] high[0, 7, 0]
// CHECK: ktdp.store
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %a: index {ktir.name = "a", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [57, 10], strides: [10, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 9 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<57x10xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 9 >= 0)>} : memref<57x10xf16> -> !ktdp.access_tile<57x10xindex>
    %X = ktdp.load %tX : <57x10xindex> -> tensor<57x10xf16>
    %vA = ktdp.construct_memory_view %a, sizes: [10, 64], strides: [64, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 9 >= 0, d1 >= 0, -d1 + 63 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<10x64xf16>
    %tA = ktdp.construct_access_tile %vA[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 9 >= 0, d1 >= 0, -d1 + 63 >= 0)>} : memref<10x64xf16> -> !ktdp.access_tile<10x64xindex>
    %A = ktdp.load %tA : <10x64xindex> -> tensor<10x64xf16>
    %h_i = arith.constant 0.0 : f32
    %h_e = tensor.empty() : tensor<57x64xf32>
    %h_f = linalg.fill ins(%h_i : f32) outs(%h_e : tensor<57x64xf32>) -> tensor<57x64xf32>
    %h_d = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%X, %A : tensor<57x10xf16>, tensor<10x64xf16>) outs(%h_f : tensor<57x64xf32>) {
    ^bb0(%p: f16, %q: f16, %o: f32):
      %p1 = arith.extf %p : f16 to f32
      %q1 = arith.extf %q : f16 to f32
      %m1 = arith.mulf %p1, %q1 : f32
      %s = arith.addf %o, %m1 : f32
      linalg.yield %s : f32
    } -> tensor<57x64xf32>
    %h_h = tensor.empty() : tensor<57x64xf16>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%h_d : tensor<57x64xf32>) outs(%h_h : tensor<57x64xf16>) {
    ^bb0(%p: f32, %o: f16):
      %r = arith.truncf %p : f32 to f16
      linalg.yield %r : f16
    } -> tensor<57x64xf16>
    %g_i = arith.constant 0.0 : f32
    %g_e = tensor.empty() : tensor<57x57xf32>
    %g_f = linalg.fill ins(%g_i : f32) outs(%g_e : tensor<57x57xf32>) -> tensor<57x57xf32>
    %g_d = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%h, %h : tensor<57x64xf16>, tensor<57x64xf16>) outs(%g_f : tensor<57x57xf32>) {
    ^bb0(%p: f16, %q: f16, %o: f32):
      %p1 = arith.extf %p : f16 to f32
      %q1 = arith.extf %q : f16 to f32
      %m1 = arith.mulf %p1, %q1 : f32
      %s = arith.addf %o, %m1 : f32
      linalg.yield %s : f32
    } -> tensor<57x57xf32>
    %g_h = tensor.empty() : tensor<57x57xf16>
    %g = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%g_d : tensor<57x57xf32>) outs(%g_h : tensor<57x57xf16>) {
    ^bb0(%p: f32, %o: f16):
      %r = arith.truncf %p : f32 to f16
      linalg.yield %r : f16
    } -> tensor<57x57xf16>
    %vY = ktdp.construct_memory_view %y, sizes: [57, 57], strides: [57, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 56 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<57x57xf16>
    %tY = ktdp.construct_access_tile %vY[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 56 >= 0)>} : memref<57x57xf16> -> !ktdp.access_tile<57x57xindex>
    ktdp.store %g, %tY : tensor<57x57xf16>, <57x57xindex>
    return
  }
}
