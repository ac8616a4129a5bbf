// softmax of 57x10: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <57x10xindex> -> tensor<57x10xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x10xf16>)
// CHECK: ktdp.load {{.*}} : <57x10xindex> -> tensor<57x10xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x10xf16>, tensor<57xf32>)
// CHECK: math.exp {{.*}} : f32
// CHECK: linalg.generic {{.*}} : tensor<57x10xf32>)
// CHECK: linalg.generic {{.*}} : tensor<57x10xf32>, tensor<57xf32>)
// CHECK: ktdp.store {{.*}} : tensor<57x10xf16>, <57x10xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 9 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<57x10xf16>}, %arg1: index {ktir.name = "buf3", ktir.role = "output", ktir.type = tensor<57x10xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [57, 10], strides: [10, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x10xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x10xf16> -> !ktdp.access_tile<57x10xindex>
    %2 = ktdp.load %1 : <57x10xindex> -> tensor<57x10xf16>
    %cst = arith.constant 0xFF800000 : f32
    %3 = tensor.empty() : tensor<57xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<57xf32>) -> tensor<57xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<57x10xf16>) outs(%4 : tensor<57xf32>) {
    ^bb0(%in: f16, %out: f32):
      %18 = arith.extf %in : f16 to f32
      %19 = arith.maximumf %out, %18 : f32
      linalg.yield %19 : f32
    } -> tensor<57xf32>
    %6 = ktdp.construct_memory_view %arg0, sizes: [57, 10], strides: [10, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x10xf16>
    %7 = ktdp.construct_access_tile %6[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x10xf16> -> !ktdp.access_tile<57x10xindex>
    %8 = ktdp.load %7 : <57x10xindex> -> tensor<57x10xf16>
    %9 = tensor.empty() : tensor<57x10xf32>
    %10 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %5 : tensor<57x10xf16>, tensor<57xf32>) outs(%9 : tensor<57x10xf32>) {
    ^bb0(%in: f16, %in_1: f32, %out: f32):
      %18 = arith.extf %in : f16 to f32
      %19 = arith.subf %18, %in_1 : f32
      %20 = math.exp %19 : f32
      linalg.yield %20 : f32
    } -> tensor<57x10xf32>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %11 = tensor.empty() : tensor<57xf32>
    %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<57xf32>) -> tensor<57xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%10 : tensor<57x10xf32>) outs(%12 : tensor<57xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.addf %out, %in : f32
      linalg.yield %18 : f32
    } -> tensor<57xf32>
    %14 = tensor.empty() : tensor<57x10xf16>
    %15 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%10, %13 : tensor<57x10xf32>, tensor<57xf32>) outs(%14 : tensor<57x10xf16>) {
    ^bb0(%in: f32, %in_1: f32, %out: f16):
      %18 = arith.divf %in, %in_1 : f32
      %19 = arith.truncf %18 : f32 to f16
      linalg.yield %19 : f16
    } -> tensor<57x10xf16>
    %16 = ktdp.construct_memory_view %arg1, sizes: [57, 10], strides: [10, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x10xf16>
    %17 = ktdp.construct_access_tile %16[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x10xf16> -> !ktdp.access_tile<57x10xindex>
    ktdp.store %15, %17 : tensor<57x10xf16>, <57x10xindex>
    return
  }
}
