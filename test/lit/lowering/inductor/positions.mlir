// 3x10x65 plus 10x65, layer norm, linear, gelu: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: linalg.generic {{.*}} : tensor<3x10x65xf16>, tensor<3x10x65xf16>)
// CHECK: linalg.generic {{.*}} : tensor<3x10xf32>)
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: linalg.generic {{.*}} : tensor<3x10x65xf16>, tensor<3x10x65xf16>, tensor<3x10xf32>)
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: ktdp.load {{.*}} : <3x10x65xindex> -> tensor<3x10x65xf16>
// CHECK: ktdp.load {{.*}} : <65xindex> -> tensor<65xf16>
// CHECK: ktdp.load {{.*}} : <65xindex> -> tensor<65xf16>
// CHECK: linalg.generic {{.*}} : tensor<3x10x65xf16>, tensor<3x10x65xf16>, tensor<3x10xf32>, tensor<3x10xf32>, tensor<65xf16>, tensor<65xf16>)
// CHECK: math.rsqrt {{.*}} : f32
// CHECK: tensor.collapse_shape {{.*}} : tensor<3x10x65xf16> into tensor<30x65xf16>
// CHECK: ktdp.load {{.*}} : <65x100xindex> -> tensor<65x100xf16>
// CHECK: ktdp.load {{.*}} : <100xindex> -> tensor<100xf16>
// CHECK: tensor.expand_shape {{.*}} : tensor<30x100xf32> into tensor<3x10x100xf32>
// CHECK: linalg.generic {{.*}} : tensor<100xf16>, tensor<3x10x100xf32>)
// CHECK: math.erf {{.*}} : f32
// CHECK: ktdp.store {{.*}} : tensor<3x10x100xf16>, <3x10x100xindex>

#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0) -> (d0)>
#map4 = affine_map<(d0, d1, d2) -> (d2)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 9 >= 0, d2 >= 0, -d2 + 64 >= 0)>
#set1 = affine_set<(d0) : (d0 >= 0, -d0 + 64 >= 0)>
#set2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 64 >= 0, d1 >= 0, -d1 + 99 >= 0)>
#set3 = affine_set<(d0) : (d0 >= 0, -d0 + 99 >= 0)>
#set4 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 9 >= 0, d2 >= 0, -d2 + 99 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<3x10x65xf16>}, %arg1: index {ktir.name = "arg1_1", ktir.role = "input", ktir.type = tensor<10x65xf16>}, %arg2: index {ktir.name = "arg2_1", ktir.role = "input", ktir.type = tensor<65xf16>}, %arg3: index {ktir.name = "arg3_1", ktir.role = "input", ktir.type = tensor<65xf16>}, %arg4: index {ktir.name = "arg4_1", ktir.role = "input", ktir.type = tensor<100x65xf16>}, %arg5: index {ktir.name = "arg5_1", ktir.role = "input", ktir.type = tensor<100xf16>}, %arg6: index {ktir.name = "buf5", ktir.role = "output", ktir.type = tensor<3x10x100xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [3, 10, 65], strides: [650, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %1 = ktdp.construct_access_tile %0[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %2 = ktdp.load %1 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %3 = ktdp.construct_memory_view %arg1, sizes: [3, 10, 65], strides: [0, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %4 = ktdp.construct_access_tile %3[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %5 = ktdp.load %4 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %6 = tensor.empty() : tensor<3x10xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<3x10xf32>) -> tensor<3x10xf32>
    %8 = linalg.generic {indexing_maps = [#map, #map, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %5 : tensor<3x10x65xf16>, tensor<3x10x65xf16>) outs(%7 : tensor<3x10xf32>) {
    ^bb0(%in: f16, %in_2: f16, %out: f32):
      %47 = arith.extf %in : f16 to f32
      %48 = arith.extf %in_2 : f16 to f32
      %49 = arith.addf %47, %48 : f32
      %50 = arith.truncf %49 : f32 to f16
      %51 = arith.extf %50 : f16 to f32
      %52 = arith.addf %out, %51 : f32
      linalg.yield %52 : f32
    } -> tensor<3x10xf32>
    %9 = tensor.empty() : tensor<3x10xf32>
    %10 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel"]} ins(%8 : tensor<3x10xf32>) outs(%9 : tensor<3x10xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst_2 = arith.constant 6.500000e+01 : f32
      %47 = arith.divf %in, %cst_2 : f32
      linalg.yield %47 : f32
    } -> tensor<3x10xf32>
    %11 = ktdp.construct_memory_view %arg0, sizes: [3, 10, 65], strides: [650, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %12 = ktdp.construct_access_tile %11[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %13 = ktdp.load %12 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %14 = ktdp.construct_memory_view %arg1, sizes: [3, 10, 65], strides: [0, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %15 = ktdp.construct_access_tile %14[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %16 = ktdp.load %15 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %17 = tensor.empty() : tensor<3x10xf32>
    %18 = linalg.fill ins(%cst_0 : f32) outs(%17 : tensor<3x10xf32>) -> tensor<3x10xf32>
    %19 = linalg.generic {indexing_maps = [#map, #map, #map1, #map1], iterator_types = ["parallel", "parallel", "reduction"]} ins(%13, %16, %10 : tensor<3x10x65xf16>, tensor<3x10x65xf16>, tensor<3x10xf32>) outs(%18 : tensor<3x10xf32>) {
    ^bb0(%in: f16, %in_2: f16, %in_3: f32, %out: f32):
      %47 = arith.extf %in : f16 to f32
      %48 = arith.extf %in_2 : f16 to f32
      %49 = arith.addf %47, %48 : f32
      %50 = arith.truncf %49 : f32 to f16
      %51 = arith.extf %50 : f16 to f32
      %52 = arith.subf %51, %in_3 : f32
      %53 = arith.mulf %52, %52 : f32
      %54 = arith.addf %out, %53 : f32
      linalg.yield %54 : f32
    } -> tensor<3x10xf32>
    %20 = ktdp.construct_memory_view %arg0, sizes: [3, 10, 65], strides: [650, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %21 = ktdp.construct_access_tile %20[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %22 = ktdp.load %21 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %23 = ktdp.construct_memory_view %arg1, sizes: [3, 10, 65], strides: [0, 65, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x10x65xf16>
    %24 = ktdp.construct_access_tile %23[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x10x65xf16> -> !ktdp.access_tile<3x10x65xindex>
    %25 = ktdp.load %24 : <3x10x65xindex> -> tensor<3x10x65xf16>
    %26 = ktdp.construct_memory_view %arg2, sizes: [65], strides: [1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<65xf16>
    %27 = ktdp.construct_access_tile %26[0] {access_tile_order = #map3, access_tile_set = #set1} : memref<65xf16> -> !ktdp.access_tile<65xindex>
    %28 = ktdp.load %27 : <65xindex> -> tensor<65xf16>
    %29 = ktdp.construct_memory_view %arg3, sizes: [65], strides: [1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<65xf16>
    %30 = ktdp.construct_access_tile %29[0] {access_tile_order = #map3, access_tile_set = #set1} : memref<65xf16> -> !ktdp.access_tile<65xindex>
    %31 = ktdp.load %30 : <65xindex> -> tensor<65xf16>
    %32 = tensor.empty() : tensor<3x10x65xf16>
    %33 = linalg.generic {indexing_maps = [#map, #map, #map1, #map1, #map4, #map4, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%22, %25, %10, %19, %28, %31 : tensor<3x10x65xf16>, tensor<3x10x65xf16>, tensor<3x10xf32>, tensor<3x10xf32>, tensor<65xf16>, tensor<65xf16>) outs(%32 : tensor<3x10x65xf16>) {
    ^bb0(%in: f16, %in_2: f16, %in_3: f32, %in_4: f32, %in_5: f16, %in_6: f16, %out: f16):
      %47 = arith.extf %in : f16 to f32
      %48 = arith.extf %in_2 : f16 to f32
      %49 = arith.addf %47, %48 : f32
      %50 = arith.truncf %49 : f32 to f16
      %51 = arith.extf %50 : f16 to f32
      %52 = arith.subf %51, %in_3 : f32
      %cst_7 = arith.constant 6.500000e+01 : f32
      %53 = arith.divf %in_4, %cst_7 : f32
      %cst_8 = arith.constant 9.99999974E-6 : f32
      %54 = arith.addf %53, %cst_8 : f32
      %55 = math.rsqrt %54 : f32
      %56 = arith.mulf %52, %55 : f32
      %57 = arith.extf %in_5 : f16 to f32
      %58 = arith.mulf %56, %57 : f32
      %59 = arith.extf %in_6 : f16 to f32
      %60 = arith.addf %58, %59 : f32
      %61 = arith.truncf %60 : f32 to f16
      linalg.yield %61 : f16
    } -> tensor<3x10x65xf16>
    %collapsed = tensor.collapse_shape %33 [[0, 1], [2]] : tensor<3x10x65xf16> into tensor<30x65xf16>
    %34 = ktdp.construct_memory_view %arg4, sizes: [65, 100], strides: [1, 65] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<65x100xf16>
    %35 = ktdp.construct_access_tile %34[0, 0] {access_tile_order = #map2, access_tile_set = #set2} : memref<65x100xf16> -> !ktdp.access_tile<65x100xindex>
    %36 = ktdp.load %35 : <65x100xindex> -> tensor<65x100xf16>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %37 = tensor.empty() : tensor<30x100xf32>
    %38 = linalg.fill ins(%cst_1 : f32) outs(%37 : tensor<30x100xf32>) -> tensor<30x100xf32>
    %39 = linalg.matmul ins(%collapsed, %36 : tensor<30x65xf16>, tensor<65x100xf16>) outs(%38 : tensor<30x100xf32>) -> tensor<30x100xf32>
    %40 = ktdp.construct_memory_view %arg5, sizes: [100], strides: [1] {coordinate_set = #set3, memory_space = #ktdp.memory_space<global>} : memref<100xf16>
    %41 = ktdp.construct_access_tile %40[0] {access_tile_order = #map3, access_tile_set = #set3} : memref<100xf16> -> !ktdp.access_tile<100xindex>
    %42 = ktdp.load %41 : <100xindex> -> tensor<100xf16>
    %expanded = tensor.expand_shape %39 [[0, 1], [2]] output_shape [3, 10, 100] : tensor<30x100xf32> into tensor<3x10x100xf32>
    %43 = tensor.empty() : tensor<3x10x100xf16>
    %44 = linalg.generic {indexing_maps = [#map4, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%42, %expanded : tensor<100xf16>, tensor<3x10x100xf32>) outs(%43 : tensor<3x10x100xf16>) {
    ^bb0(%in: f16, %in_2: f32, %out: f16):
      %47 = arith.extf %in : f16 to f32
      %48 = arith.addf %47, %in_2 : f32
      %cst_3 = arith.constant 5.000000e-01 : f32
      %49 = arith.mulf %48, %cst_3 : f32
      %cst_4 = arith.constant 0.707106769 : f32
      %50 = arith.mulf %48, %cst_4 : f32
      %51 = math.erf %50 : f32
      %cst_5 = arith.constant 1.000000e+00 : f32
      %52 = arith.addf %51, %cst_5 : f32
      %53 = arith.mulf %49, %52 : f32
      %54 = arith.truncf %53 : f32 to f16
      linalg.yield %54 : f16
    } -> tensor<3x10x100xf16>
    %45 = ktdp.construct_memory_view %arg6, sizes: [3, 10, 100], strides: [1000, 100, 1] {coordinate_set = #set4, memory_space = #ktdp.memory_space<global>} : memref<3x10x100xf16>
    %46 = ktdp.construct_access_tile %45[0, 0, 0] {access_tile_order = #map, access_tile_set = #set4} : memref<3x10x100xf16> -> !ktdp.access_tile<3x10x100xindex>
    ktdp.store %44, %46 : tensor<3x10x100xf16>, <3x10x100xindex>
    return
  }
}
