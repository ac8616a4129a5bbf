// A tensor that is reduced along one dimension and then along the other one is laid out again: it goes through linear memory.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-verify-level | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --check-semantics | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --remarks 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// CHECK: #[[CUT70:.*]] = affine_set<{{.*}}d0 * -64 - d2 + 69 >= 0)>
// CHECK: #[[CUT5:.*]] = affine_set<{{.*}}d0 * -64 - d2 + 4 >= 0)>
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: ktir.layout = #ktir.layout<size = [582], device = [10, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = zero>, ktir.name = "pool0", ktir.role = "pool"
// CHECK: math.exp
// CHECK: -> tensor<2x5x64xf16
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [2, 5, 64], strides: [64, 128, 1] {coordinate_set = #[[CUT70]], {{.*}}masked
// CHECK: ktdp.store
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction"]
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [1, 70, 64], strides: [8192, 1, 128] {coordinate_set = #[[CUT5]], {{.*}}masked
// CHECK: ktdp.load {{.*}} -> tensor<1x70x64xf16
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "reduction"]

// REMARK: remark: [ktir-assign-layouts] tensor<5x70> is made with dimension 1 in the stick and read with dimension 0 in the stick: 12000 bytes through memory; with dimension 0 in the stick at this op the program moves {{.*}} bytes, so 12000
// REMARK: remark: [ktir-assign-layouts] relayouts and linear memory: 12000 bytes; no choice moves fewer
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %s: index {ktir.name = "s", ktir.role = "output"}, %t: index {ktir.name = "t", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [5, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5x70xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<5x70xf16> -> !ktdp.access_tile<5x70xindex>
    %X = ktdp.load %tX : <5x70xindex> -> tensor<5x70xf16>
    %e = tensor.empty() : tensor<5x70xf16>
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%X : tensor<5x70xf16>) outs(%e : tensor<5x70xf16>) {
    ^bb0(%a: f16, %o: f16):
      %r = math.exp %a : f16
      linalg.yield %r : f16
    } -> tensor<5x70xf16>
    %s0_i = arith.constant 0.0 : f32
    %s0_e = tensor.empty() : tensor<5xf32>
    %s0_f = linalg.fill ins(%s0_i : f32) outs(%s0_e : tensor<5xf32>) -> tensor<5xf32>
    %s0 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
        ins(%h : tensor<5x70xf16>) outs(%s0_f : tensor<5xf32>) {
    ^bb0(%a: f16, %o: f32):
      %w = arith.extf %a : f16 to f32
      %r = arith.addf %o, %w : f32
      linalg.yield %r : f32
    } -> tensor<5xf32>
    %z = arith.constant 0.0 : f32
    %ce = tensor.empty() : tensor<70xf32>
    %cf = linalg.fill ins(%z : f32) outs(%ce : tensor<70xf32>) -> tensor<70xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n)>], iterator_types = ["parallel", "reduction"]}
        ins(%h : tensor<5x70xf16>) outs(%cf : tensor<70xf32>) {
    ^bb0(%a: f16, %o: f32):
      %w = arith.extf %a : f16 to f32
      %r = arith.addf %o, %w : f32
      linalg.yield %r : f32
    } -> tensor<70xf32>
    %vS = ktdp.construct_memory_view %s, sizes: [5], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %tS = ktdp.construct_access_tile %vS[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    ktdp.store %s0, %tS : tensor<5xf32>, <5xindex>
    %vT = ktdp.construct_memory_view %t, sizes: [70], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<70xf32>
    %tT = ktdp.construct_access_tile %vT[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 69 >= 0)>} : memref<70xf32> -> !ktdp.access_tile<70xindex>
    ktdp.store %c, %tT : tensor<70xf32>, <70xindex>
    return
  }
}
