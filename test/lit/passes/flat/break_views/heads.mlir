// Keys that groups of heads share: the loop over heads is split, the group is a loop of rows that the keys do not have.
// RUN: ktir-opt %s --ktir-break-views --check-semantics | FileCheck %s

#v4 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 5 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#vk = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 6 >= 0)>
#vs = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 5 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 2 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#a = affine_map<(b, m, n, k) -> (b, m, k)>
#b = affine_map<(b, m, n, k) -> (b, n, k)>
#c = affine_map<(b, m, n, k) -> (b, m, n)>

// CHECK-DAG: #[[Q:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
// CHECK-DAG: #[[K:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d4)>
// CHECK-DAG: #[[S:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
// CHECK-LABEL: func.func @scores(
// CHECK-DAG: ktdp.construct_memory_view %arg0, sizes: [2, 3, 5, 7], strides: [105, 35, 7, 1]
// CHECK-DAG: ktdp.construct_memory_view %arg1, sizes: [2, 3, 7], strides: [21, 7, 1]
// CHECK: linalg.generic {indexing_maps = [#[[Q]], #[[K]], #[[S]]], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
// CHECK: ktdp.construct_memory_view %arg2, sizes: [2, 3, 5, 3], strides: [45, 15, 3, 1]
module attributes {ktir.level = "logical"} {
  func.func @scores(%q: index {ktir.name = "q", ktir.role = "input", ktir.type = tensor<6x5x7xf16>},
                    %k: index {ktir.name = "k", ktir.role = "input", ktir.type = tensor<2x3x7xf16>},
                    %s: index {ktir.name = "s", ktir.role = "output", ktir.type = tensor<6x5x3xf32>}) {
    %vq = ktdp.construct_memory_view %q, sizes: [6, 5, 7], strides: [35, 7, 1] {coordinate_set = #v4, memory_space = #ktdp.memory_space<global>} : memref<6x5x7xf16>
    %tq = ktdp.construct_access_tile %vq[0, 0, 0] {access_tile_order = #id3, access_tile_set = #v4} : memref<6x5x7xf16> -> !ktdp.access_tile<6x5x7xindex>
    %lq = ktdp.load %tq : <6x5x7xindex> -> tensor<6x5x7xf16>
    %vk = ktdp.construct_memory_view %k, sizes: [2, 3, 3, 7], strides: [21, 0, 7, 1] {coordinate_set = #vk, memory_space = #ktdp.memory_space<global>} : memref<2x3x3x7xf16>
    %tk = ktdp.construct_access_tile %vk[0, 0, 0, 0] {access_tile_order = #id4, access_tile_set = #vk} : memref<2x3x3x7xf16> -> !ktdp.access_tile<2x3x3x7xindex>
    %lk = ktdp.load %tk : <2x3x3x7xindex> -> tensor<2x3x3x7xf16>
    %ck = tensor.collapse_shape %lk [[0, 1], [2], [3]] : tensor<2x3x3x7xf16> into tensor<6x3x7xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<6x5x3xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<6x5x3xf32>) -> tensor<6x5x3xf32>
    %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%lq, %ck : tensor<6x5x7xf16>, tensor<6x3x7xf16>) outs(%init : tensor<6x5x3xf32>) {
    ^bb0(%x: f16, %y: f16, %o: f32):
      %xx = arith.extf %x : f16 to f32
      %yy = arith.extf %y : f16 to f32
      %p = arith.mulf %xx, %yy : f32
      %t = arith.addf %o, %p : f32
      linalg.yield %t : f32
    } -> tensor<6x5x3xf32>
    %vs = ktdp.construct_memory_view %s, sizes: [6, 5, 3], strides: [15, 3, 1] {coordinate_set = #vs, memory_space = #ktdp.memory_space<global>} : memref<6x5x3xf32>
    %ts = ktdp.construct_access_tile %vs[0, 0, 0] {access_tile_order = #id3, access_tile_set = #vs} : memref<6x5x3xf32> -> !ktdp.access_tile<6x5x3xindex>
    ktdp.store %r, %ts : tensor<6x5x3xf32>, <6x5x3xindex>
    return
  }
}
