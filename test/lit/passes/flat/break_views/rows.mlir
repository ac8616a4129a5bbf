// Rows that a matmul sees as one dim and its user as two are two loops of rows; nothing goes through memory.
// RUN: ktir-opt %s --ktir-generalize --ktir-break-views --check-semantics | FileCheck %s

#vx = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#vw = affine_set<(d0, d1) : (d0 >= 0, -d0 + 6 >= 0, d1 >= 0, -d1 + 8 >= 0)>
#vy = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 8 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @linear(
// CHECK-NOT: pool
// CHECK: linalg.generic {indexing_maps = [#[[A]], #[[B]], #[[C]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
// CHECK-NOT: tensor.expand_shape
module attributes {ktir.level = "logical"} {
  func.func @linear(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<3x5x7xf16>},
                    %w: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<7x9xf16>},
                    %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<3x5x9xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [3, 5, 7], strides: [35, 7, 1] {coordinate_set = #vx, memory_space = #ktdp.memory_space<global>} : memref<3x5x7xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0, 0] {access_tile_order = #id3, access_tile_set = #vx} : memref<3x5x7xf16> -> !ktdp.access_tile<3x5x7xindex>
    %lx = ktdp.load %tx : <3x5x7xindex> -> tensor<3x5x7xf16>
    %e = tensor.empty() : tensor<3x5x7xf16>
    %n = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%lx : tensor<3x5x7xf16>) outs(%e : tensor<3x5x7xf16>) {
    ^bb0(%i: f16, %o: f16):
      %r = arith.negf %i : f16
      linalg.yield %r : f16
    } -> tensor<3x5x7xf16>
    %c = tensor.collapse_shape %n [[0, 1], [2]] : tensor<3x5x7xf16> into tensor<15x7xf16>
    %vw = ktdp.construct_memory_view %w, sizes: [7, 9], strides: [9, 1] {coordinate_set = #vw, memory_space = #ktdp.memory_space<global>} : memref<7x9xf16>
    %tw = ktdp.construct_access_tile %vw[0, 0] {access_tile_order = #id2, access_tile_set = #vw} : memref<7x9xf16> -> !ktdp.access_tile<7x9xindex>
    %lw = ktdp.load %tw : <7x9xindex> -> tensor<7x9xf16>
    %zero = arith.constant 0.0 : f32
    %z = tensor.empty() : tensor<15x9xf32>
    %init = linalg.fill ins(%zero : f32) outs(%z : tensor<15x9xf32>) -> tensor<15x9xf32>
    %m = linalg.matmul ins(%c, %lw : tensor<15x7xf16>, tensor<7x9xf16>) outs(%init : tensor<15x9xf32>) -> tensor<15x9xf32>
    %x3 = tensor.expand_shape %m [[0, 1], [2]] output_shape [3, 5, 9] : tensor<15x9xf32> into tensor<3x5x9xf32>
    %f = tensor.empty() : tensor<3x5x9xf16>
    %t = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x3 : tensor<3x5x9xf32>) outs(%f : tensor<3x5x9xf16>) {
    ^bb0(%i: f32, %o: f16):
      %r = arith.truncf %i : f32 to f16
      linalg.yield %r : f16
    } -> tensor<3x5x9xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [3, 5, 9], strides: [45, 9, 1] {coordinate_set = #vy, memory_space = #ktdp.memory_space<global>} : memref<3x5x9xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0] {access_tile_order = #id3, access_tile_set = #vy} : memref<3x5x9xf16> -> !ktdp.access_tile<3x5x9xindex>
    ktdp.store %t, %ty : tensor<3x5x9xf16>, <3x5x9xindex>
    return
  }
}
