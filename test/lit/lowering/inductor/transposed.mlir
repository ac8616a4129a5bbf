// a reshape of a transposed input, a slice, a column: logical KTIR as the Inductor route emits it. Written by test/unit/lowering/inductor/test_lit_inputs.py.
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated | FileCheck %s --check-prefix=ALLOCATED
// ALLOCATED: ktir.level = "allocated"
// ALLOCATED: #ktdp.memory_space<ct_local>

// CHECK: ktir.level = "logical"
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.load {{.*}} : <29x2x57xindex> -> tensor<29x2x57xf16>
// CHECK: tensor.collapse_shape {{.*}} : tensor<29x2x57xf16> into tensor<29x114xf16>
// CHECK: linalg.generic {{.*}} : tensor<29x114xf16>)
// CHECK: ktdp.store {{.*}} : tensor<29x114xf16>, <29x114xindex>

#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 28 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 56 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 28 >= 0, d1 >= 0, -d1 + 113 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "arg0_1", ktir.role = "input", ktir.type = tensor<57x64xf16>}, %arg1: index {ktir.name = "buf0", ktir.role = "output", ktir.type = tensor<29x114xf16>}) {
    %c6 = arith.constant 6 : index
    %0 = arith.addi %arg0, %c6 : index
    %1 = ktdp.construct_memory_view %0, sizes: [29, 2, 57], strides: [2, 1, 64] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<29x2x57xf16>
    %2 = ktdp.construct_access_tile %1[0, 0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<29x2x57xf16> -> !ktdp.access_tile<29x2x57xindex>
    %3 = ktdp.load %2 : <29x2x57xindex> -> tensor<29x2x57xf16>
    %collapsed = tensor.collapse_shape %3 [[0], [1, 2]] : tensor<29x2x57xf16> into tensor<29x114xf16>
    %4 = tensor.empty() : tensor<29x114xf16>
    %5 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%collapsed : tensor<29x114xf16>) outs(%4 : tensor<29x114xf16>) {
    ^bb0(%in: f16, %out: f16):
      %8 = arith.extf %in : f16 to f32
      %cst = arith.constant 1.000000e+00 : f32
      %9 = arith.addf %8, %cst : f32
      %10 = arith.truncf %9 : f32 to f16
      linalg.yield %10 : f16
    } -> tensor<29x114xf16>
    %6 = ktdp.construct_memory_view %arg1, sizes: [29, 114], strides: [114, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<29x114xf16>
    %7 = ktdp.construct_access_tile %6[0, 0] {access_tile_order = #map1, access_tile_set = #set1} : memref<29x114xf16> -> !ktdp.access_tile<29x114xindex>
    ktdp.store %5, %7 : tensor<29x114xf16>, <29x114xindex>
    return
  }
}
