// Dims and loops of extent 1 go: from views and tiles, from the maps of generics, from what reshapes, slices and pads say.
// RUN: ktir-opt %s --split-input-file --ktir-break-views --check-semantics | FileCheck %s

#s715 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 6 >= 0, d1 >= 0, -d1 >= 0, d2 >= 0, -d2 + 4 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#first = affine_map<(d0, d1, d2) -> (d0, 0)>

// A sum with its dim kept, read again at the constant 0.
// CHECK-LABEL: func.func @kept(
// CHECK: ktdp.construct_memory_view %arg0, sizes: [7, 5], strides: [5, 1]
// CHECK: linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<7x5xf16>) outs(%{{.*}} : tensor<7xf32>)
// CHECK: linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%{{.*}}, %{{.*}} : tensor<7x5xf16>, tensor<7xf32>)
// CHECK: sizes: [7, 5]
module attributes {ktir.level = "logical"} {
  func.func @kept(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<7x1x5xf16>},
                  %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<7x1x5xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [7, 1, 5], strides: [5, 5, 1] {coordinate_set = #s715, memory_space = #ktdp.memory_space<global>} : memref<7x1x5xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0, 0] {access_tile_order = #id3, access_tile_set = #s715} : memref<7x1x5xf16> -> !ktdp.access_tile<7x1x5xindex>
    %a = ktdp.load %tx : <7x1x5xindex> -> tensor<7x1x5xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<7x1xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<7x1xf32>) -> tensor<7x1xf32>
    %r = linalg.generic {indexing_maps = [#id3, affine_map<(d0, d1, d2) -> (d0, d1)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a : tensor<7x1x5xf16>) outs(%f : tensor<7x1xf32>) {
    ^bb0(%i: f16, %o: f32):
      %w = arith.extf %i : f16 to f32
      %s = arith.addf %o, %w : f32
      linalg.yield %s : f32
    } -> tensor<7x1xf32>
    %g = tensor.empty() : tensor<7x1x5xf16>
    %h = linalg.generic {indexing_maps = [#id3, #first, #id3], iterator_types = ["parallel", "parallel", "parallel"]} ins(%a, %r : tensor<7x1x5xf16>, tensor<7x1xf32>) outs(%g : tensor<7x1x5xf16>) {
    ^bb0(%i: f16, %q: f32, %o: f16):
      %k = arith.truncf %q : f32 to f16
      %s = arith.mulf %i, %k : f16
      linalg.yield %s : f16
    } -> tensor<7x1x5xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [7, 1, 5], strides: [5, 5, 1] {coordinate_set = #s715, memory_space = #ktdp.memory_space<global>} : memref<7x1x5xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0] {access_tile_order = #id3, access_tile_set = #s715} : memref<7x1x5xf16> -> !ktdp.access_tile<7x1x5xindex>
    ktdp.store %h, %ty : tensor<7x1x5xf16>, <7x1x5xindex>
    return
  }
}

// -----

#s71 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 6 >= 0, d1 >= 0, -d1 >= 0)>
#s15 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 4 >= 0)>
#s75 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 6 >= 0, d1 >= 0, -d1 + 4 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// A product over one element: a pointwise op that adds to the constant.
// CHECK-LABEL: func.func @outer(
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%{{.*}}, %{{.*}} : tensor<7xf16>, tensor<5xf16>)
// CHECK: arith.addf %[[ZERO]], %{{.*}} : f32
module attributes {ktir.level = "logical"} {
  func.func @outer(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<7x1xf16>},
                   %w: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<1x5xf16>},
                   %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<7x5xf32>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [7, 1], strides: [1, 1] {coordinate_set = #s71, memory_space = #ktdp.memory_space<global>} : memref<7x1xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id2, access_tile_set = #s71} : memref<7x1xf16> -> !ktdp.access_tile<7x1xindex>
    %a = ktdp.load %tx : <7x1xindex> -> tensor<7x1xf16>
    %vw = ktdp.construct_memory_view %w, sizes: [1, 5], strides: [5, 1] {coordinate_set = #s15, memory_space = #ktdp.memory_space<global>} : memref<1x5xf16>
    %tw = ktdp.construct_access_tile %vw[0, 0] {access_tile_order = #id2, access_tile_set = #s15} : memref<1x5xf16> -> !ktdp.access_tile<1x5xindex>
    %b = ktdp.load %tw : <1x5xindex> -> tensor<1x5xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<7x5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<7x5xf32>) -> tensor<7x5xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<7x1xf16>, tensor<1x5xf16>) outs(%f : tensor<7x5xf32>) {
    ^bb0(%i: f16, %j: f16, %o: f32):
      %p = arith.extf %i : f16 to f32
      %q = arith.extf %j : f16 to f32
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<7x5xf32>
    %vy = ktdp.construct_memory_view %y, sizes: [7, 5], strides: [5, 1] {coordinate_set = #s75, memory_space = #ktdp.memory_space<global>} : memref<7x5xf32>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #s75} : memref<7x5xf32> -> !ktdp.access_tile<7x5xindex>
    ktdp.store %r, %ty : tensor<7x5xf32>, <7x5xindex>
    return
  }
}

// -----

#s75 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 6 >= 0, d1 >= 0, -d1 + 4 >= 0)>
#s15 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 4 >= 0)>
#s35 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 4 >= 0)>
#s1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// One row of a table by an index from memory, with a row of zeros before and behind it.
// CHECK-LABEL: func.func @padded_row(
// CHECK: %[[I:.*]] = ktdp.construct_memory_view %arg1, sizes: [], strides: []
// CHECK: ktdp.construct_indirect_access_tile intermediate_variables(%[[V:.*]]) %{{.*}}[ind(%[[I]][]), (%[[V]])] {{.*}} -> !ktdp.access_tile<5xindex>
// CHECK: linalg.fill {{.*}} tensor<3x5xf16>
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [5], strides: [1]
module attributes {ktir.level = "logical"} {
  func.func @padded_row(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<7x5xf16>},
                        %i: index {ktir.name = "i", ktir.role = "input", ktir.type = tensor<1xi64>},
                        %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<3x5xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [7, 5], strides: [5, 1] {coordinate_set = #s75, memory_space = #ktdp.memory_space<global>} : memref<7x5xf16>
    %vi = ktdp.construct_memory_view %i, sizes: [1], strides: [1] {coordinate_set = #s1, memory_space = #ktdp.memory_space<global>} : memref<1xi64>
    %tx = ktdp.construct_indirect_access_tile intermediate_variables(%r, %c) %vx[ind(%vi[%r]), (%c)] {variables_space_order = #id2, variables_space_set = #s15} : memref<7x5xf16>, memref<1xi64> -> !ktdp.access_tile<1x5xindex>
    %a = ktdp.load %tx : <1x5xindex> -> tensor<1x5xf16>
    %zero = arith.constant 0.0 : f16
    %p = tensor.pad %a low[1, 0] high[1, 0] {
    ^bb0(%d0: index, %d1: index):
      tensor.yield %zero : f16
    } : tensor<1x5xf16> to tensor<3x5xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [3, 5], strides: [5, 1] {coordinate_set = #s35, memory_space = #ktdp.memory_space<global>} : memref<3x5xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #s35} : memref<3x5xf16> -> !ktdp.access_tile<3x5xindex>
    ktdp.store %p, %ty : tensor<3x5xf16>, <3x5xindex>
    return
  }
}
