// New keys go into a cache at positions that are read from memory; grouped queries meet all of it: linear memory, a scatter, a batched contraction.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-verify-level | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --check-semantics | FileCheck %s

// CHECK: #[[CUT:.*]] = affine_set<(d0, d1, d2, d3) : ({{.*}}d0 * -64 - d3 + 15 >= 0)>
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [160], strides = [1]>, ktir.layout = #ktir.layout<size = [160], device = [3, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = zero>, ktir.name = "cache", ktir.role = "input_output"
// CHECK-SAME: ktir.layout = #ktir.layout<size = [3], device = [1, 64], strides = [64, 1], dtype = i32, arrangement = standard, pad = zero>, ktir.name = "at", ktir.role = "input"
// CHECK: %[[CACHE:.*]] = ktdp.construct_memory_view %{{.*}}, sizes: [1, 2, 5, 64], strides: [64, 80, 16, 1] {coordinate_set = #[[CUT]], {{.*}}masked
// CHECK: %[[AT:.*]] = ktdp.construct_memory_view %{{.*}}, sizes: [3], strides: [1]
// CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[S:.*]], %[[G:.*]], %[[P:.*]], %[[L:.*]]) %[[CACHE]][(%[[S]]), (%[[G]]), ind(%[[AT]][%[[P]]]), (%[[L]])]
// CHECK: ktdp.store {{.*}} {ktir.ordered}
// The keys lie as in memory, K in the stick: rows are padded to 64 and split into blocks.
// CHECK: ktdp.load {{.*}} -> tensor<1x2x5x64xf16
// CHECK: tensor.pad {{.*}} low[0, 0, 0, 0] high[0, 0, 59, 0]
// CHECK: tensor.expand_shape {{.*}} {{\[\[}}0], [1], [2, 3], [4]] output_shape [1, 2, 1, 64, 64]
// Group and row of a query are apart, head and row are not: loops (n, group, head and row, j, k, i).
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]{{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x2x12x64xf16
module attributes {ktir.level = "flat"} {
  func.func @forward(%k: index {ktir.name = "k", ktir.role = "input", ktir.type = tensor<2x3x16xf16>}, %cache: index {ktir.name = "cache", ktir.role = "input_output", ktir.type = tensor<2x5x16xf16>}, %at: index {ktir.name = "at", ktir.role = "input", ktir.type = tensor<3xi32>}, %q: index {ktir.name = "q", ktir.role = "input", ktir.type = tensor<2x4x3x16xf16>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<2x4x3x5xf32>}) {
    %vk = ktdp.construct_memory_view %k, sizes: [2, 3, 16], strides: [48, 16, 1] {coordinate_set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 15 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x3x16xf16>
    %tk = ktdp.construct_access_tile %vk[0, 0, 0] {access_tile_order = affine_map<(d0, d1, d2) -> (d0, d1, d2)>, access_tile_set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 15 >= 0)>} : memref<2x3x16xf16> -> !ktdp.access_tile<2x3x16xindex>
    %keys = ktdp.load %tk : <2x3x16xindex> -> tensor<2x3x16xf16>
    %vc = ktdp.construct_memory_view %cache, sizes: [2, 5, 16], strides: [80, 16, 1] {coordinate_set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 15 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x5x16xf16>
    %va = ktdp.construct_memory_view %at, sizes: [3], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3xi32>
    %tc = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j, %l) %vc[(%i), ind(%va[%j]), (%l)] {variables_space_order = affine_map<(d0, d1, d2) -> (d0, d1, d2)>, variables_space_set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 15 >= 0)>} : memref<2x5x16xf16>, memref<3xi32> -> !ktdp.access_tile<2x3x16xindex>
    ktdp.store %keys, %tc {ktir.ordered} : tensor<2x3x16xf16>, <2x3x16xindex>
    %tall = ktdp.construct_access_tile %vc[0, 0, 0] {access_tile_order = affine_map<(d0, d1, d2) -> (d0, d1, d2)>, access_tile_set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 15 >= 0)>} : memref<2x5x16xf16> -> !ktdp.access_tile<2x5x16xindex>
    %all = ktdp.load %tall : <2x5x16xindex> -> tensor<2x5x16xf16>
    %vq = ktdp.construct_memory_view %q, sizes: [2, 4, 3, 16], strides: [192, 48, 16, 1] {coordinate_set = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 15 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x4x3x16xf16>
    %tq = ktdp.construct_access_tile %vq[0, 0, 0, 0] {access_tile_order = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, access_tile_set = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 15 >= 0)>} : memref<2x4x3x16xf16> -> !ktdp.access_tile<2x4x3x16xindex>
    %queries = ktdp.load %tq : <2x4x3x16xindex> -> tensor<2x4x3x16xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<2x4x3x5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
    %scores = linalg.generic {indexing_maps = [affine_map<(g, h, m, n, k) -> (g, h, m, k)>, affine_map<(g, h, m, n, k) -> (g, n, k)>, affine_map<(g, h, m, n, k) -> (g, h, m, n)>],
        iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%queries, %all : tensor<2x4x3x16xf16>, tensor<2x5x16xf16>) outs(%f : tensor<2x4x3x5xf32>) {
    ^bb0(%a: f16, %b: f16, %o: f32):
      %aw = arith.extf %a : f16 to f32
      %bw = arith.extf %b : f16 to f32
      %p = arith.mulf %aw, %bw : f32
      %r = arith.addf %o, %p : f32
      linalg.yield %r : f32
    } -> tensor<2x4x3x5xf32>
    %vy = ktdp.construct_memory_view %y, sizes: [2, 4, 3, 5], strides: [60, 15, 5, 1] {coordinate_set = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x4x3x5xf32>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0, 0] {access_tile_order = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, access_tile_set = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 4 >= 0)>} : memref<2x4x3x5xf32> -> !ktdp.access_tile<2x4x3x5xindex>
    ktdp.store %scores, %ty : tensor<2x4x3x5xf32>, <2x4x3x5xindex>
    return
  }
}
