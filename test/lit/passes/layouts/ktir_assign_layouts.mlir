// A row sum of 5 x 70: the reduced dimension lies in the stick, lanes beyond 70 are masked only where they are not zero already.
// RUN: ktir-opt %s --ktir-assign-layouts | FileCheck %s

// CHECK: ktir.level = "laid-out"
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [5, 70], strides = [70, 1]>
// CHECK-SAME: ktir.layout = #ktir.layout<size = [5, 70], device = [2, 5, 64], strides = [64, 70, 1], dtype = f16, arrangement = standard, pad = zero>
// CHECK-SAME: #ktir.layout<size = [5, 1], device = [1, 5, 64], strides = [-1, 1, -1], dtype = f32
// CHECK: ktdp.load {{.*}} -> tensor<2x5x64xf16, #ktir.layout<
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction"]
// CHECK-NOT: arith.select
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]
// CHECK: math.exp
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction"]
// CHECK: %[[LIMIT:.*]] = arith.constant 70 : index
// CHECK: %[[LIVE:.*]] = arith.cmpi ult, %{{.*}}, %[[LIMIT]] : index
// CHECK: arith.select %[[LIVE]], %{{.*}}, %{{.*}} : f32
// CHECK: ktdp.store {{.*}} tensor<1x5x64xf32
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %s: index {ktir.name = "s", ktir.role = "output"}, %t: index {ktir.name = "t", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [5, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5x70xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<5x70xf16> -> !ktdp.access_tile<5x70xindex>
    %X = ktdp.load %tX : <5x70xindex> -> tensor<5x70xf16>
    %s0_i = arith.constant 0.0 : f32
    %s0_e = tensor.empty() : tensor<5xf32>
    %s0_f = linalg.fill ins(%s0_i : f32) outs(%s0_e : tensor<5xf32>) -> tensor<5xf32>
    %s0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
        ins(%X : tensor<5x70xf16>) outs(%s0_f : tensor<5xf32>) {
    ^bb0(%a: f16, %o: f32):
      %w = arith.extf %a : f16 to f32
      %r = arith.addf %o, %w : f32
      linalg.yield %r : f32
    } -> tensor<5xf32>
    %e = tensor.empty() : tensor<5x70xf16>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%X : tensor<5x70xf16>) outs(%e : tensor<5x70xf16>) {
    ^bb0(%a: f16, %o: f16):
      %r = math.exp %a : f16
      linalg.yield %r : f16
    } -> tensor<5x70xf16>
    %t0_i = arith.constant 0.0 : f32
    %t0_e = tensor.empty() : tensor<5xf32>
    %t0_f = linalg.fill ins(%t0_i : f32) outs(%t0_e : tensor<5xf32>) -> tensor<5xf32>
    %t0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
        ins(%h : tensor<5x70xf16>) outs(%t0_f : tensor<5xf32>) {
    ^bb0(%a: f16, %o: f32):
      %w = arith.extf %a : f16 to f32
      %r = arith.addf %o, %w : f32
      linalg.yield %r : f32
    } -> tensor<5xf32>
    %vS = ktdp.construct_memory_view %s, sizes: [5], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %tS = ktdp.construct_access_tile %vS[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    ktdp.store %s0, %tS : tensor<5xf32>, <5xindex>
    %vT = ktdp.construct_memory_view %t, sizes: [5], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %tT = ktdp.construct_access_tile %vT[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    ktdp.store %t0, %tT : tensor<5xf32>, <5xindex>
    return
  }
}
