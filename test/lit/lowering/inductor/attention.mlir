// softmax(q @ k.t()) @ v, 10 queries, 57 keys: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <10x64xindex> -> tensor<10x64xf16>
// CHECK: ktdp.load {{.*}} : <64x57xindex> -> tensor<64x57xf16>
// CHECK: linalg.generic {{.*}} : tensor<10x57xf32>)
// CHECK: linalg.generic {{.*}} : tensor<10x57xf32>, tensor<10xf32>)
// CHECK: math.exp {{.*}} : f32
// CHECK: linalg.generic {{.*}} : tensor<10x57xf32>)
// CHECK: linalg.generic {{.*}} : tensor<10x57xf32>, tensor<10xf32>)
// CHECK: ktdp.load {{.*}} : <57x64xindex> -> tensor<57x64xf16>
// CHECK: linalg.generic {{.*}} : tensor<10x64xf32>)
// CHECK: ktdp.store {{.*}} : tensor<10x64xf16>, <10x64xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 9 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 56 >= 0)>
#set2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<57x64xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<10x64xf16>}, %arg2: index {ktir.name = "arg2_1", ktir.role = "input", ktir.type = tensor<57x64xf16>}, %arg3: index {ktir.name = "buf6", ktir.role = "output", ktir.type = tensor<10x64xf16>}) {
    %0 = ktdp.construct_memory_view %arg1, sizes: [10, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<10x64xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<10x64xf16> -> !ktdp.access_tile<10x64xindex>
    %2 = ktdp.load %1 : <10x64xindex> -> tensor<10x64xf16>
    %3 = ktdp.construct_memory_view %arg0, sizes: [64, 57], strides: [1, 64] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<64x57xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<64x57xf16> -> !ktdp.access_tile<64x57xindex>
    %5 = ktdp.load %4 : <64x57xindex> -> tensor<64x57xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<10x57xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<10x57xf32>) -> tensor<10x57xf32>
    %8 = linalg.matmul ins(%2, %5 : tensor<10x64xf16>, tensor<64x57xf16>) outs(%7 : tensor<10x57xf32>) -> tensor<10x57xf32>
    %cst_0 = arith.constant 0xFF800000 : f32
    %9 = tensor.empty() : tensor<10xf32>
    %10 = linalg.fill ins(%cst_0 : f32) outs(%9 : tensor<10xf32>) -> tensor<10xf32>
    %11 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%8 : tensor<10x57xf32>) outs(%10 : tensor<10xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst_3 = arith.constant 1.250000e-01 : f32
      %29 = arith.mulf %in, %cst_3 : f32
      %30 = arith.truncf %29 : f32 to f16
      %31 = arith.extf %30 : f16 to f32
      %32 = arith.maximumf %out, %31 : f32
      linalg.yield %32 : f32
    } -> tensor<10xf32>
    %12 = tensor.empty() : tensor<10x57xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %11 : tensor<10x57xf32>, tensor<10xf32>) outs(%12 : tensor<10x57xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %cst_4 = arith.constant 1.250000e-01 : f32
      %29 = arith.mulf %in, %cst_4 : f32
      %30 = arith.truncf %29 : f32 to f16
      %31 = arith.extf %30 : f16 to f32
      %32 = arith.subf %31, %in_3 : f32
      %33 = math.exp %32 : f32
      linalg.yield %33 : f32
    } -> tensor<10x57xf32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %14 = tensor.empty() : tensor<10xf32>
    %15 = linalg.fill ins(%cst_1 : f32) outs(%14 : tensor<10xf32>) -> tensor<10xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%13 : tensor<10x57xf32>) outs(%15 : tensor<10xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = arith.addf %out, %in : f32
      linalg.yield %29 : f32
    } -> tensor<10xf32>
    %17 = tensor.empty() : tensor<10x57xf16>
    %18 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%13, %16 : tensor<10x57xf32>, tensor<10xf32>) outs(%17 : tensor<10x57xf16>) {
    ^bb0(%in: f32, %in_3: f32, %out: f16):
      %29 = arith.divf %in, %in_3 : f32
      %30 = arith.truncf %29 : f32 to f16
      linalg.yield %30 : f16
    } -> tensor<10x57xf16>
    %19 = ktdp.construct_memory_view %arg2, sizes: [57, 64], strides: [64, 1] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
    %20 = ktdp.construct_access_tile %19[0, 0] {access_tile_order = #map, access_tile_set = #set2} : memref<57x64xf16> -> !ktdp.access_tile<57x64xindex>
    %21 = ktdp.load %20 : <57x64xindex> -> tensor<57x64xf16>
    %cst_2 = arith.constant 0.000000e+00 : f32
    %22 = tensor.empty() : tensor<10x64xf32>
    %23 = linalg.fill ins(%cst_2 : f32) outs(%22 : tensor<10x64xf32>) -> tensor<10x64xf32>
    %24 = linalg.matmul ins(%18, %21 : tensor<10x57xf16>, tensor<57x64xf16>) outs(%23 : tensor<10x64xf32>) -> tensor<10x64xf32>
    %25 = tensor.empty() : tensor<10x64xf16>
    %26 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%24 : tensor<10x64xf32>) outs(%25 : tensor<10x64xf16>) {
    ^bb0(%in: f32, %out: f16):
      %29 = arith.truncf %in : f32 to f16
      linalg.yield %29 : f16
    } -> tensor<10x64xf16>
    %27 = ktdp.construct_memory_view %arg3, sizes: [10, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<10x64xf16>
    %28 = ktdp.construct_access_tile %27[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<10x64xf16> -> !ktdp.access_tile<10x64xindex>
    ktdp.store %26, %28 : tensor<10x64xf16>, <10x64xindex>
    return
  }
}
