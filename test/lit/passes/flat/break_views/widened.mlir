// What is widened last is widened by its readers; an op that only widens goes.
// RUN: ktir-opt %s --ktir-break-views --check-semantics | FileCheck %s

// CHECK-LABEL: func.func @f(
// CHECK: %[[E:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<70x128xf16>)
// CHECK: math.exp
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[E]] : tensor<70x128xf16>)
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-NEXT: math.absf
// CHECK: linalg.generic {{.*}} ins(%[[E]], %{{.*}} : tensor<70x128xf16>, tensor<70xf32>)
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-NEXT: arith.divf
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 69 >= 0, d1 >= 0, -d1 + 127 >= 0)>
#m = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
module attributes {ktir.level = "logical"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<70x128xf16>}, %o: index {ktir.name = "o", ktir.role = "output", ktir.type = tensor<70x128xf32>}) {
    %0 = ktdp.construct_memory_view %x, sizes: [70, 128], strides: [128, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70x128xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #m, access_tile_set = #set} : memref<70x128xf16> -> !ktdp.access_tile<70x128xindex>
    %2 = ktdp.load %1 : <70x128xindex> -> tensor<70x128xf16>
    %e = tensor.empty() : tensor<70x128xf16>
    %3 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<70x128xf16>) outs(%e : tensor<70x128xf16>) {
    ^bb0(%a: f16, %b: f16):
      %q = math.exp %a : f16
      linalg.yield %q : f16
    } -> tensor<70x128xf16>
    %g = tensor.empty() : tensor<70x128xf32>
    %4 = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<70x128xf16>) outs(%g : tensor<70x128xf32>) {
    ^bb0(%a: f16, %b: f32):
      %q = arith.extf %a : f16 to f32
      linalg.yield %q : f32
    } -> tensor<70x128xf32>
    %c = arith.constant 0xFF800000 : f32
    %h = tensor.empty() : tensor<70xf32>
    %i = linalg.fill ins(%c : f32) outs(%h : tensor<70xf32>) -> tensor<70xf32>
    %5 = linalg.generic {indexing_maps = [#m, #r], iterator_types = ["parallel", "reduction"]} ins(%4 : tensor<70x128xf32>) outs(%i : tensor<70xf32>) {
    ^bb0(%a: f32, %b: f32):
      %q = math.absf %a : f32
      %s = arith.maximumf %b, %q : f32
      linalg.yield %s : f32
    } -> tensor<70xf32>
    %6 = linalg.generic {indexing_maps = [#m, #r, #m], iterator_types = ["parallel", "parallel"]} ins(%4, %5 : tensor<70x128xf32>, tensor<70xf32>) outs(%g : tensor<70x128xf32>) {
    ^bb0(%a: f32, %b: f32, %z: f32):
      %q = arith.divf %a, %b : f32
      linalg.yield %q : f32
    } -> tensor<70x128xf32>
    %7 = ktdp.construct_memory_view %o, sizes: [70, 128], strides: [128, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70x128xf32>
    %8 = ktdp.construct_access_tile %7[0, 0] {access_tile_order = #m, access_tile_set = #set} : memref<70x128xf32> -> !ktdp.access_tile<70x128xindex>
    ktdp.store %6, %8 : tensor<70x128xf32>, <70x128xindex>
    return
  }
}
