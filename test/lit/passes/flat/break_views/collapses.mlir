// What is copied for a collapse is dense if the collapse needs that, though what comes behind needs a copy in any case.
// RUN: ktir-opt %s --ktir-break-views --check-semantics | FileCheck %s

#v357 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#v105 = affine_set<(d0) : (d0 >= 0, -d0 + 104 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#swap = affine_map<(d0, d1) -> (d1, d0)>

// CHECK-LABEL: func.func @twice(
// CHECK-SAME: ktir.role = "pool", ktir.type = tensor<105xf16>
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [3, 5, 7], strides: [35, 7, 1]
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [7, 15], strides: [1, 7]
// CHECK-NOT: tensor.collapse_shape
module attributes {ktir.level = "logical"} {
  func.func @twice(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5x7x3xf16>},
                   %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<105xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [3, 5, 7], strides: [1, 21, 3] {coordinate_set = #v357, memory_space = #ktdp.memory_space<global>} : memref<3x5x7xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0, 0] {access_tile_order = #id3, access_tile_set = #v357} : memref<3x5x7xf16> -> !ktdp.access_tile<3x5x7xindex>
    %a = ktdp.load %tx : <3x5x7xindex> -> tensor<3x5x7xf16>
    %b = tensor.collapse_shape %a [[0, 1, 2]] : tensor<3x5x7xf16> into tensor<105xf16>
    %c = tensor.expand_shape %b [[0, 1]] output_shape [15, 7] : tensor<105xf16> into tensor<15x7xf16>
    %e = tensor.empty() : tensor<7x15xf16>
    %d = linalg.generic {indexing_maps = [#swap, #id2], iterator_types = ["parallel", "parallel"]} ins(%c : tensor<15x7xf16>) outs(%e : tensor<7x15xf16>) {
    ^bb0(%i: f16, %o: f16):
      linalg.yield %i : f16
    } -> tensor<7x15xf16>
    %f = tensor.collapse_shape %d [[0, 1]] : tensor<7x15xf16> into tensor<105xf16>
    %g = tensor.empty() : tensor<105xf16>
    %h = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]} ins(%f : tensor<105xf16>) outs(%g : tensor<105xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = math.absf %i : f16
      linalg.yield %n : f16
    } -> tensor<105xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [105], strides: [1] {coordinate_set = #v105, memory_space = #ktdp.memory_space<global>} : memref<105xf16>
    %ty = ktdp.construct_access_tile %vy[0] {access_tile_order = #id1, access_tile_set = #v105} : memref<105xf16> -> !ktdp.access_tile<105xindex>
    ktdp.store %h, %ty : tensor<105xf16>, <105xindex>
    return
  }
}
