// relu(linear(x)), 57x64 -> 100: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
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
// CHECK: ktdp.store {{.*}} : tensor<57x100xf16>, <57x100xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set2 = affine_set<(d0) : (d0 >= 0, -d0 + 99 >= 0)>
#set3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 99 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<100x64xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg2: index {ktir.name = "arg2_1", ktir.role = "input", ktir.type = tensor<57x64xf16>}, %arg3: index {ktir.name = "buf1", ktir.role = "output", ktir.type = tensor<57x100xf16>}) {
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
    ^bb0(%in: f16, %in_0: f32, %out: f16):
      %16 = arith.extf %in : f16 to f32
      %17 = arith.addf %16, %in_0 : f32
      %cst_1 = arith.constant 0.000000e+00 : f32
      %18 = arith.cmpf olt, %17, %cst_1 : f32
      %19 = arith.select %18, %cst_1, %17 : f32
      %20 = arith.truncf %19 : f32 to f16
      linalg.yield %20 : f16
    } -> tensor<57x100xf16>
    %14 = ktdp.construct_memory_view %arg3, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set3, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set3} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    ktdp.store %13, %15 : tensor<57x100xf16>, <57x100xindex>
    return
  }
}
