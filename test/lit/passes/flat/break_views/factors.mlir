// A sum of products whose second factor walks two loops alone has its factors exchanged, so that these are rows; with two loops on
// either side the sum stays a reduction.
// RUN: ktir-opt %s --ktir-break-views --check-semantics --split-input-file --verify-diagnostics | FileCheck %s

#sx = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 6 >= 0)>
#sy = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#sz = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#x = affine_map<(b, m, n, k) -> (m, k)>
#y = affine_map<(b, m, n, k) -> (b, n, k)>
#z = affine_map<(b, m, n, k) -> (b, m, n)>

// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
// CHECK-DAG: #[[Z:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1)>
// CHECK-LABEL: func.func @shared_rows(
// CHECK: %[[X_VALUE:.*]] = ktdp.load %{{.*}} -> tensor<5x7xf16>
// CHECK: %[[Y_VALUE:.*]] = ktdp.load %{{.*}} -> tensor<3x4x7xf16>
// CHECK: linalg.generic {indexing_maps = [#[[Y]], #[[X]], #[[Z]]]{{.*}} ins(%[[Y_VALUE]], %[[X_VALUE]] :
module attributes {ktir.level = "logical"} {
  func.func @shared_rows(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5x7xf16>},
                         %y: index {ktir.name = "y", ktir.role = "input", ktir.type = tensor<3x4x7xf16>},
                         %z: index {ktir.name = "z", ktir.role = "output", ktir.type = tensor<3x5x4xf32>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [5, 7], strides: [7, 1] {coordinate_set = #sx, memory_space = #ktdp.memory_space<global>} : memref<5x7xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id2, access_tile_set = #sx} : memref<5x7xf16> -> !ktdp.access_tile<5x7xindex>
    %lx = ktdp.load %tx : <5x7xindex> -> tensor<5x7xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [3, 4, 7], strides: [28, 7, 1] {coordinate_set = #sy, memory_space = #ktdp.memory_space<global>} : memref<3x4x7xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0] {access_tile_order = #id3, access_tile_set = #sy} : memref<3x4x7xf16> -> !ktdp.access_tile<3x4x7xindex>
    %ly = ktdp.load %ty : <3x4x7xindex> -> tensor<3x4x7xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<3x5x4xf32>
    %o = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
    %r = linalg.generic {indexing_maps = [#x, #y, #z], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%lx, %ly : tensor<5x7xf16>, tensor<3x4x7xf16>) outs(%o : tensor<3x5x4xf32>) {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %p = arith.extf %a : f16 to f32
      %q = arith.extf %b : f16 to f32
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %c, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5x4xf32>
    %vz = ktdp.construct_memory_view %z, sizes: [3, 5, 4], strides: [20, 4, 1] {coordinate_set = #sz, memory_space = #ktdp.memory_space<global>} : memref<3x5x4xf32>
    %tz = ktdp.construct_access_tile %vz[0, 0, 0] {access_tile_order = #id3, access_tile_set = #sz} : memref<3x5x4xf32> -> !ktdp.access_tile<3x5x4xindex>
    ktdp.store %r, %tz : tensor<3x5x4xf32>, <3x5x4xindex>
    return
  }
}

// -----

#sx = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#sy = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 6 >= 0)>
#sz = affine_set<(d0, d1, d2, d3) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 4 >= 0, d2 >= 0, -d2 + 2 >= 0, d3 >= 0, -d3 + 3 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#x = affine_map<(a, m, b, n, k) -> (a, m, k)>
#y = affine_map<(a, m, b, n, k) -> (b, n, k)>
#z = affine_map<(a, m, b, n, k) -> (a, m, b, n)>
module attributes {ktir.level = "logical"} {
  func.func @two_and_two(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<2x5x7xf16>},
                         %y: index {ktir.name = "y", ktir.role = "input", ktir.type = tensor<3x4x7xf16>},
                         %z: index {ktir.name = "z", ktir.role = "output", ktir.type = tensor<2x5x3x4xf32>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [2, 5, 7], strides: [35, 7, 1] {coordinate_set = #sx, memory_space = #ktdp.memory_space<global>} : memref<2x5x7xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0, 0] {access_tile_order = #id3, access_tile_set = #sx} : memref<2x5x7xf16> -> !ktdp.access_tile<2x5x7xindex>
    %lx = ktdp.load %tx : <2x5x7xindex> -> tensor<2x5x7xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [3, 4, 7], strides: [28, 7, 1] {coordinate_set = #sy, memory_space = #ktdp.memory_space<global>} : memref<3x4x7xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0, 0] {access_tile_order = #id3, access_tile_set = #sy} : memref<3x4x7xf16> -> !ktdp.access_tile<3x4x7xindex>
    %ly = ktdp.load %ty : <3x4x7xindex> -> tensor<3x4x7xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<2x5x3x4xf32>
    %o = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x3x4xf32>) -> tensor<2x5x3x4xf32>
    %r = linalg.generic {indexing_maps = [#x, #y, #z], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
        ins(%lx, %ly : tensor<2x5x7xf16>, tensor<3x4x7xf16>) outs(%o : tensor<2x5x3x4xf32>) {
    ^bb0(%a: f16, %b: f16, %c: f32):
      %p = arith.extf %a : f16 to f32
      %q = arith.extf %b : f16 to f32
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %c, %m : f32
      linalg.yield %s : f32
    } -> tensor<2x5x3x4xf32>
    %vz = ktdp.construct_memory_view %z, sizes: [2, 5, 3, 4], strides: [60, 12, 4, 1] {coordinate_set = #sz, memory_space = #ktdp.memory_space<global>} : memref<2x5x3x4xf32>
    %tz = ktdp.construct_access_tile %vz[0, 0, 0, 0] {access_tile_order = #id4, access_tile_set = #sz} : memref<2x5x3x4xf32> -> !ktdp.access_tile<2x5x3x4xindex>
    ktdp.store %r, %tz : tensor<2x5x3x4xf32>, <2x5x3x4xindex>
    return
  }
}
