// Reshapes, slices, concatenations and pads of values are pools; those of loads are other views.
// RUN: ktir-opt %s --split-input-file --ktir-break-views --check-semantics | FileCheck %s

#v6 = affine_set<(d0) : (d0 >= 0, -d0 + 5 >= 0)>
#v46 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 5 >= 0)>
#v42 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#first2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#v24 = affine_set<(d0) : (d0 >= 0, -d0 + 23 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>

// A row of 6 is stored with a pitch of 64; its halves are a dim of stride 3.
// CHECK-LABEL: func.func @expanded(
// CHECK-SAME: ktir.name = "pool0", ktir.role = "pool", ktir.type = tensor<4x6xf16>
// CHECK: ktdp.construct_memory_view %arg2, sizes: [4, 6], strides: [64, 1]
// CHECK: ktdp.store
// CHECK: ktdp.construct_memory_view %arg2, sizes: [4, 2, 3], strides: [64, 3, 1]
// CHECK-NOT: tensor.expand_shape
module attributes {ktir.level = "logical"} {
  func.func @expanded(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4x6xf16>},
                      %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<4x2xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [4, 6], strides: [6, 1] {coordinate_set = #v46, memory_space = #ktdp.memory_space<global>} : memref<4x6xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id2, access_tile_set = #v46} : memref<4x6xf16> -> !ktdp.access_tile<4x6xindex>
    %a = ktdp.load %tx : <4x6xindex> -> tensor<4x6xf16>
    %e = tensor.empty() : tensor<4x6xf16>
    %b = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x6xf16>) outs(%e : tensor<4x6xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = arith.negf %i : f16
      linalg.yield %n : f16
    } -> tensor<4x6xf16>
    %c = tensor.expand_shape %b [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf16> into tensor<4x2x3xf16>
    %low = arith.constant 0xFC00 : f16
    %f = tensor.empty() : tensor<4x2xf16>
    %g = linalg.fill ins(%low : f16) outs(%f : tensor<4x2xf16>) -> tensor<4x2xf16>
    %d = linalg.generic {indexing_maps = [#id3, #first2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%c : tensor<4x2x3xf16>) outs(%g : tensor<4x2xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = arith.maximumf %o, %i : f16
      linalg.yield %n : f16
    } -> tensor<4x2xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [4, 2], strides: [2, 1] {coordinate_set = #v42, memory_space = #ktdp.memory_space<global>} : memref<4x2xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #v42} : memref<4x2xf16> -> !ktdp.access_tile<4x2xindex>
    ktdp.store %d, %ty : tensor<4x2xf16>, <4x2xindex>
    return
  }
}

// -----

#v46 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 5 >= 0)>
#v24 = affine_set<(d0) : (d0 >= 0, -d0 + 23 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// A load is read in the shape that is wanted; a result is stored through a view of the shape that it has. No pool.
// CHECK-LABEL: func.func @views(
// CHECK-NOT: pool
// CHECK: ktdp.construct_memory_view %arg0, sizes: [24], strides: [1]
// CHECK: ktdp.construct_memory_view %arg1, sizes: [24], strides: [1]
// CHECK: return
module attributes {ktir.level = "logical"} {
  func.func @views(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4x6xf16>},
                   %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<4x6xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [4, 6], strides: [6, 1] {coordinate_set = #v46, memory_space = #ktdp.memory_space<global>} : memref<4x6xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id2, access_tile_set = #v46} : memref<4x6xf16> -> !ktdp.access_tile<4x6xindex>
    %a = ktdp.load %tx : <4x6xindex> -> tensor<4x6xf16>
    %c = tensor.collapse_shape %a [[0, 1]] : tensor<4x6xf16> into tensor<24xf16>
    %e = tensor.empty() : tensor<24xf16>
    %b = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]} ins(%c : tensor<24xf16>) outs(%e : tensor<24xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = arith.negf %i : f16
      linalg.yield %n : f16
    } -> tensor<24xf16>
    %d = tensor.expand_shape %b [[0, 1]] output_shape [4, 6] : tensor<24xf16> into tensor<4x6xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [4, 6], strides: [6, 1] {coordinate_set = #v46, memory_space = #ktdp.memory_space<global>} : memref<4x6xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #v46} : memref<4x6xf16> -> !ktdp.access_tile<4x6xindex>
    ktdp.store %d, %ty : tensor<4x6xf16>, <4x6xindex>
    return
  }
}

// -----

#v4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#v10 = affine_set<(d0) : (d0 >= 0, -d0 + 9 >= 0)>
#id1 = affine_map<(d0) -> (d0)>

// Parts of a whole are stored into its buffer, a pad is a fill under its middle; the pad is made in the output.
// CHECK-LABEL: func.func @whole(
// CHECK-SAME: ktir.name = "pool0", ktir.role = "pool", ktir.type = tensor<8xf16>
// CHECK-NOT: pool1
// CHECK: %[[A:.*]] = ktdp.construct_memory_view %arg2, sizes: [4], strides: [1]
// CHECK: ktdp.store
// CHECK: %[[O:.*]] = arith.addi %arg2, %{{.*}} : index
// CHECK: ktdp.construct_memory_view %[[O]], sizes: [4], strides: [1]
// CHECK: ktdp.store
// CHECK: linalg.fill
// CHECK: ktdp.construct_memory_view %arg1, sizes: [10], strides: [1]
// CHECK: ktdp.store
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [8], strides: [1]
// CHECK: ktdp.store
// CHECK-NOT: tensor.{{insert_slice|pad}}
module attributes {ktir.level = "logical"} {
  func.func @whole(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4xf16>},
                   %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<10xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #v4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %tx = ktdp.construct_access_tile %vx[0] {access_tile_order = #id1, access_tile_set = #v4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    %a = ktdp.load %tx : <4xindex> -> tensor<4xf16>
    %e = tensor.empty() : tensor<4xf16>
    %b = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]} ins(%a : tensor<4xf16>) outs(%e : tensor<4xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = arith.negf %i : f16
      linalg.yield %n : f16
    } -> tensor<4xf16>
    %w = tensor.empty() : tensor<8xf16>
    %w0 = tensor.insert_slice %b into %w[0] [4] [1] : tensor<4xf16> into tensor<8xf16>
    %w1 = tensor.insert_slice %a into %w0[4] [4] [1] : tensor<4xf16> into tensor<8xf16>
    %p = tensor.pad %w1 low[1] high[1] {
    ^bb0(%i: index):
      %one = arith.constant 1.0 : f16
      tensor.yield %one : f16
    } : tensor<8xf16> to tensor<10xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [10], strides: [1] {coordinate_set = #v10, memory_space = #ktdp.memory_space<global>} : memref<10xf16>
    %ty = ktdp.construct_access_tile %vy[0] {access_tile_order = #id1, access_tile_set = #v10} : memref<10xf16> -> !ktdp.access_tile<10xindex>
    ktdp.store %p, %ty : tensor<10xf16>, <10xindex>
    return
  }
}
