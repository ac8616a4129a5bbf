// three linear layers with a residual, 57x64: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <57x64xindex> -> tensor<57x64xf16>
// CHECK: ktdp.load {{.*}} : <64x100xindex> -> tensor<64x100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: linalg.generic {{.*}} : tensor<100xf16>, tensor<57x100xf32>)
// CHECK: ktdp.load {{.*}} : <100x100xindex> -> tensor<100x100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: linalg.generic {{.*}} : tensor<100xf16>, tensor<57x100xf32>)
// CHECK: ktdp.load {{.*}} : <100x64xindex> -> tensor<100x64xf16>
// CHECK: ktdp.load {{.*}} : <64xindex> -> tensor<64xf16>
// CHECK: ktdp.load {{.*}} : <57x64xindex> -> tensor<57x64xf16>
// CHECK: linalg.generic {{.*}} : tensor<64xf16>, tensor<57x64xf32>, tensor<57x64xf16>)
// CHECK: ktdp.store {{.*}} : tensor<57x64xf16>, <57x64xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set2 = affine_set<(d0) : (d0 >= 0, -d0 + 99 >= 0)>
#set3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 99 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 99 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#set5 = affine_set<(d0) : (d0 >= 0, -d0 + 63 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<100x64xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg2: index {ktir.name = "arg2_1", ktir.role = "input", ktir.type = tensor<57x64xf16>}, %arg3: index {ktir.name = "arg3_1", ktir.role = "input", ktir.type = tensor<100x100xf16>}, %arg4: index {ktir.name = "arg4_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg5: index {ktir.name = "arg5_1", ktir.role = "input", ktir.type = tensor<64x100xf16>}, %arg6: index {ktir.name = "arg6_1", ktir.role = "input", ktir.type = tensor<64xf16>}, %arg7: index {ktir.name = "buf5", ktir.role = "output", ktir.type = tensor<57x64xf16>}) {
    %0 = ktdp.construct_memory_view %arg2, sizes: [57, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x64xf16> -> !ktdp.access_tile<57x64xindex>
    %2 = ktdp.load %1 : <57x64xindex> -> tensor<57x64xf16>
    %3 = ktdp.construct_memory_view %arg0, sizes: [64, 100], strides: [1, 64] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<64x100xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<64x100xf16> -> !ktdp.access_tile<64x100xindex>
    %5 = ktdp.load %4 : <64x100xindex> -> tensor<64x100xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<57x100xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<57x100xf32>) -> tensor<57x100xf32>
    %8 = linalg.matmul ins(%2, %5 : tensor<57x64xf16>, tensor<64x100xf16>) outs(%7 : tensor<57x100xf32>) -> tensor<57x100xf32>
    %9 = ktdp.construct_memory_view %arg1, sizes: [100], strides: [1] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %10 = ktdp.construct_access_tile %9[0] {access_tile_order = #map1, access_tile_set = #set2} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %11 = ktdp.load %10 : <100xindex> -> tensor<100xf16>
    %12 = tensor.empty() : tensor<57x100xf16>
    %13 = linalg.generic {indexing_maps = [#map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%11, %8 : tensor<100xf16>, tensor<57x100xf32>) outs(%12 : tensor<57x100xf16>) {
    ^bb0(%in: f16, %in_2: f32, %out: f16):
      %41 = arith.extf %in : f16 to f32
      %42 = arith.addf %41, %in_2 : f32
      %cst_3 = arith.constant 0.000000e+00 : f32
      %43 = arith.cmpf olt, %42, %cst_3 : f32
      %44 = arith.select %43, %cst_3, %42 : f32
      %45 = arith.truncf %44 : f32 to f16
      linalg.yield %45 : f16
    } -> tensor<57x100xf16>
    %14 = ktdp.construct_memory_view %arg3, sizes: [100, 100], strides: [1, 100] {coordinate_set = #set3, memory_space = #ktdp.memory_space<global>} : memref<100x100xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set3} : memref<100x100xf16> -> !ktdp.access_tile<100x100xindex>
    %16 = ktdp.load %15 : <100x100xindex> -> tensor<100x100xf16>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %17 = tensor.empty() : tensor<57x100xf32>
    %18 = linalg.fill ins(%cst_0 : f32) outs(%17 : tensor<57x100xf32>) -> tensor<57x100xf32>
    %19 = linalg.matmul ins(%13, %16 : tensor<57x100xf16>, tensor<100x100xf16>) outs(%18 : tensor<57x100xf32>) -> tensor<57x100xf32>
    %20 = ktdp.construct_memory_view %arg4, sizes: [100], strides: [1] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %21 = ktdp.construct_access_tile %20[0] {access_tile_order = #map1, access_tile_set = #set2} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %22 = ktdp.load %21 : <100xindex> -> tensor<100xf16>
    %23 = tensor.empty() : tensor<57x100xf16>
    %24 = linalg.generic {indexing_maps = [#map2, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%22, %19 : tensor<100xf16>, tensor<57x100xf32>) outs(%23 : tensor<57x100xf16>) {
    ^bb0(%in: f16, %in_2: f32, %out: f16):
      %41 = arith.extf %in : f16 to f32
      %42 = arith.addf %41, %in_2 : f32
      %cst_3 = arith.constant 0.000000e+00 : f32
      %43 = arith.cmpf olt, %42, %cst_3 : f32
      %44 = arith.select %43, %cst_3, %42 : f32
      %45 = arith.truncf %44 : f32 to f16
      linalg.yield %45 : f16
    } -> tensor<57x100xf16>
    %25 = ktdp.construct_memory_view %arg5, sizes: [100, 64], strides: [1, 100] {coordinate_set = #set4, memory_space = #ktdp.memory_space<global>} : memref<100x64xf16>
    %26 = ktdp.construct_access_tile %25[0, 0] {access_tile_order = #map, access_tile_set = #set4} : memref<100x64xf16> -> !ktdp.access_tile<100x64xindex>
    %27 = ktdp.load %26 : <100x64xindex> -> tensor<100x64xf16>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %28 = tensor.empty() : tensor<57x64xf32>
    %29 = linalg.fill ins(%cst_1 : f32) outs(%28 : tensor<57x64xf32>) -> tensor<57x64xf32>
    %30 = linalg.matmul ins(%24, %27 : tensor<57x100xf16>, tensor<100x64xf16>) outs(%29 : tensor<57x64xf32>) -> tensor<57x64xf32>
    %31 = ktdp.construct_memory_view %arg6, sizes: [64], strides: [1] {coordinate_set = #set5, memory_space = #ktdp.memory_space<global>} : memref<64xf16>
    %32 = ktdp.construct_access_tile %31[0] {access_tile_order = #map1, access_tile_set = #set5} : memref<64xf16> -> !ktdp.access_tile<64xindex>
    %33 = ktdp.load %32 : <64xindex> -> tensor<64xf16>
    %34 = ktdp.construct_memory_view %arg2, sizes: [57, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
    %35 = ktdp.construct_access_tile %34[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x64xf16> -> !ktdp.access_tile<57x64xindex>
    %36 = ktdp.load %35 : <57x64xindex> -> tensor<57x64xf16>
    %37 = tensor.empty() : tensor<57x64xf16>
    %38 = linalg.generic {indexing_maps = [#map2, #map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%33, %30, %36 : tensor<64xf16>, tensor<57x64xf32>, tensor<57x64xf16>) outs(%37 : tensor<57x64xf16>) {
    ^bb0(%in: f16, %in_2: f32, %in_3: f16, %out: f16):
      %41 = arith.extf %in : f16 to f32
      %42 = arith.addf %41, %in_2 : f32
      %43 = arith.extf %in_3 : f16 to f32
      %44 = arith.addf %42, %43 : f32
      %45 = arith.truncf %44 : f32 to f16
      linalg.yield %45 : f16
    } -> tensor<57x64xf16>
    %39 = ktdp.construct_memory_view %arg7, sizes: [57, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
    %40 = ktdp.construct_access_tile %39[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x64xf16> -> !ktdp.access_tile<57x64xindex>
    ktdp.store %38, %40 : tensor<57x64xf16>, <57x64xindex>
    return
  }
}
