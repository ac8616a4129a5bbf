// Five operands: the vector unit has three inputs, so the body is computed in two steps with an f16 tensor between them.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-split-bodies | FileCheck %s

// CHECK: %[[HALF:.*]] = linalg.generic {{.*}} ins(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} :
// CHECK: arith.addf
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}} ins(%{{[^,]*}}, %{{[^,]*}}, %[[HALF]] :
// CHECK: arith.addf
// CHECK: arith.mulf
// CHECK-NOT: linalg.generic
module attributes {ktir.level = "flat"} {
  func.func @forward(%a: index {ktir.name = "a", ktir.role = "input"}, %b: index {ktir.name = "b", ktir.role = "input"}, %c: index {ktir.name = "c", ktir.role = "input"}, %d: index {ktir.name = "d", ktir.role = "input"}, %e: index {ktir.name = "e", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "output"}) {
    %vA = ktdp.construct_memory_view %a, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tA = ktdp.construct_access_tile %vA[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    %A = ktdp.load %tA : <3x70xindex> -> tensor<3x70xf16>
    %vB = ktdp.construct_memory_view %b, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tB = ktdp.construct_access_tile %vB[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    %B = ktdp.load %tB : <3x70xindex> -> tensor<3x70xf16>
    %vC = ktdp.construct_memory_view %c, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tC = ktdp.construct_access_tile %vC[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    %C = ktdp.load %tC : <3x70xindex> -> tensor<3x70xf16>
    %vD = ktdp.construct_memory_view %d, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tD = ktdp.construct_access_tile %vD[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    %D = ktdp.load %tD : <3x70xindex> -> tensor<3x70xf16>
    %vE = ktdp.construct_memory_view %e, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tE = ktdp.construct_access_tile %vE[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    %E = ktdp.load %tE : <3x70xindex> -> tensor<3x70xf16>
    %init = tensor.empty() : tensor<3x70xf16>
    %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%A, %B, %C, %D, %E : tensor<3x70xf16>, tensor<3x70xf16>, tensor<3x70xf16>, tensor<3x70xf16>, tensor<3x70xf16>) outs(%init : tensor<3x70xf16>) {
    ^bb0(%p: f16, %q: f16, %r: f16, %s: f16, %t: f16, %o: f16):
      %0 = arith.addf %p, %q : f16
      %1 = arith.mulf %0, %r : f16
      %2 = arith.addf %1, %s : f16
      %3 = arith.mulf %2, %t : f16
      linalg.yield %3 : f16
    } -> tensor<3x70xf16>
    %vY = ktdp.construct_memory_view %y, sizes: [3, 70], strides: [70, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %tY = ktdp.construct_access_tile %vY[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    ktdp.store %r, %tY : tensor<3x70xf16>, <3x70xindex>
    return
  }
}
