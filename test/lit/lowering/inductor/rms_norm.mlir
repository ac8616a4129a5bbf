// RMS norm of 57x100: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <57x100xindex> -> tensor<57x100xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x100xf16>)
// CHECK: ktdp.load {{.*}} : <57x100xindex> -> tensor<57x100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x100xf16>, tensor<57xf32>, tensor<100xf16>)
// CHECK: math.rsqrt {{.*}} : f32
// CHECK: ktdp.store {{.*}} : tensor<57x100xf16>, <57x100xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set1 = affine_set<(d0) : (d0 >= 0, -d0 + 99 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<57x100xf16>}, %arg2: index {ktir.name = "buf1", ktir.role = "output", ktir.type = tensor<57x100xf16>}) {
    %0 = ktdp.construct_memory_view %arg1, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %2 = ktdp.load %1 : <57x100xindex> -> tensor<57x100xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<57xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<57xf32>) -> tensor<57xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<57x100xf16>) outs(%4 : tensor<57xf32>) {
    ^bb0(%in: f16, %out: f32):
      %16 = arith.extf %in : f16 to f32
      %17 = arith.mulf %16, %16 : f32
      %18 = arith.addf %out, %17 : f32
      linalg.yield %18 : f32
    } -> tensor<57xf32>
    %6 = ktdp.construct_memory_view %arg1, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %7 = ktdp.construct_access_tile %6[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %8 = ktdp.load %7 : <57x100xindex> -> tensor<57x100xf16>
    %9 = ktdp.construct_memory_view %arg0, sizes: [100], strides: [1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %10 = ktdp.construct_access_tile %9[0] {access_tile_order = #map2, access_tile_set = #set1} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %11 = ktdp.load %10 : <100xindex> -> tensor<100xf16>
    %12 = tensor.empty() : tensor<57x100xf16>
    %13 = linalg.generic {indexing_maps = [#map, #map1, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %5, %11 : tensor<57x100xf16>, tensor<57xf32>, tensor<100xf16>) outs(%12 : tensor<57x100xf16>) {
    ^bb0(%in: f16, %in_0: f32, %in_1: f16, %out: f16):
      %16 = arith.extf %in : f16 to f32
      %cst_2 = arith.constant 1.000000e+02 : f32
      %17 = arith.divf %in_0, %cst_2 : f32
      %cst_3 = arith.constant 1.1920929E-7 : f32
      %18 = arith.addf %17, %cst_3 : f32
      %19 = math.rsqrt %18 : f32
      %20 = arith.mulf %16, %19 : f32
      %21 = arith.extf %in_1 : f16 to f32
      %22 = arith.mulf %20, %21 : f32
      %23 = arith.truncf %22 : f32 to f16
      linalg.yield %23 : f16
    } -> tensor<57x100xf16>
    %14 = ktdp.construct_memory_view %arg2, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    ktdp.store %13, %15 : tensor<57x100xf16>, <57x100xindex>
    return
  }
}
