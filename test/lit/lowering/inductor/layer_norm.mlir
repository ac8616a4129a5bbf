// layer norm of 57x100: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <57x100xindex> -> tensor<57x100xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x100xf16>)
// CHECK: linalg.generic {{.*}} : tensor<57xf32>)
// CHECK: ktdp.load {{.*}} : <57x100xindex> -> tensor<57x100xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x100xf16>, tensor<57xf32>)
// CHECK: ktdp.load {{.*}} : <57x100xindex> -> tensor<57x100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: linalg.generic {{.*}} : tensor<57x100xf16>, tensor<57xf32>, tensor<57xf32>, tensor<100xf16>, tensor<100xf16>)
// CHECK: math.rsqrt {{.*}} : f32
// CHECK: ktdp.store {{.*}} : tensor<57x100xf16>, <57x100xindex>

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set1 = affine_set<(d0) : (d0 >= 0, -d0 + 99 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg2: index {ktir.name = "arg2_1", ktir.role = "input", ktir.type = tensor<57x100xf16>}, %arg3: index {ktir.name = "buf3", ktir.role = "output", ktir.type = tensor<57x100xf16>}) {
    %0 = ktdp.construct_memory_view %arg2, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %2 = ktdp.load %1 : <57x100xindex> -> tensor<57x100xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %3 = tensor.empty() : tensor<57xf32>
    %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<57xf32>) -> tensor<57xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<57x100xf16>) outs(%4 : tensor<57xf32>) {
    ^bb0(%in: f16, %out: f32):
      %27 = arith.extf %in : f16 to f32
      %28 = arith.addf %out, %27 : f32
      linalg.yield %28 : f32
    } -> tensor<57xf32>
    %6 = tensor.empty() : tensor<57xf32>
    %7 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%5 : tensor<57xf32>) outs(%6 : tensor<57xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst_1 = arith.constant 1.000000e+02 : f32
      %27 = arith.divf %in, %cst_1 : f32
      linalg.yield %27 : f32
    } -> tensor<57xf32>
    %8 = ktdp.construct_memory_view %arg2, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %9 = ktdp.construct_access_tile %8[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %10 = ktdp.load %9 : <57x100xindex> -> tensor<57x100xf16>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %11 = tensor.empty() : tensor<57xf32>
    %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<57xf32>) -> tensor<57xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%10, %7 : tensor<57x100xf16>, tensor<57xf32>) outs(%12 : tensor<57xf32>) {
    ^bb0(%in: f16, %in_1: f32, %out: f32):
      %27 = arith.extf %in : f16 to f32
      %28 = arith.subf %27, %in_1 : f32
      %29 = arith.mulf %28, %28 : f32
      %30 = arith.addf %out, %29 : f32
      linalg.yield %30 : f32
    } -> tensor<57xf32>
    %14 = ktdp.construct_memory_view %arg2, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    %16 = ktdp.load %15 : <57x100xindex> -> tensor<57x100xf16>
    %17 = ktdp.construct_memory_view %arg0, sizes: [100], strides: [1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %18 = ktdp.construct_access_tile %17[0] {access_tile_order = #map2, access_tile_set = #set1} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %19 = ktdp.load %18 : <100xindex> -> tensor<100xf16>
    %20 = ktdp.construct_memory_view %arg1, sizes: [100], strides: [1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %21 = ktdp.construct_access_tile %20[0] {access_tile_order = #map2, access_tile_set = #set1} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %22 = ktdp.load %21 : <100xindex> -> tensor<100xf16>
    %23 = tensor.empty() : tensor<57x100xf16>
    %24 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map3, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%16, %7, %13, %19, %22 : tensor<57x100xf16>, tensor<57xf32>, tensor<57xf32>, tensor<100xf16>, tensor<100xf16>) outs(%23 : tensor<57x100xf16>) {
    ^bb0(%in: f16, %in_1: f32, %in_2: f32, %in_3: f16, %in_4: f16, %out: f16):
      %27 = arith.extf %in : f16 to f32
      %28 = arith.subf %27, %in_1 : f32
      %cst_5 = arith.constant 1.000000e+02 : f32
      %29 = arith.divf %in_2, %cst_5 : f32
      %cst_6 = arith.constant 9.99999974E-6 : f32
      %30 = arith.addf %29, %cst_6 : f32
      %31 = math.rsqrt %30 : f32
      %32 = arith.mulf %28, %31 : f32
      %33 = arith.extf %in_3 : f16 to f32
      %34 = arith.mulf %32, %33 : f32
      %35 = arith.extf %in_4 : f16 to f32
      %36 = arith.addf %34, %35 : f32
      %37 = arith.truncf %36 : f32 to f16
      linalg.yield %37 : f16
    } -> tensor<57x100xf16>
    %25 = ktdp.construct_memory_view %arg3, sizes: [57, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<57x100xf16>
    %26 = ktdp.construct_access_tile %25[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<57x100xf16> -> !ktdp.access_tile<57x100xindex>
    ktdp.store %24, %26 : tensor<57x100xf16>, <57x100xindex>
    return
  }
}
