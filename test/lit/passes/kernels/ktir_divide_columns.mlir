// 5 rows and 16 sticks of columns on 32 cores: 3 parts of two rows, 8 parts of two sticks. The last part of the rows has one row.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work --ktir-tile | FileCheck %s --check-prefix=TILE
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=cores=1 --ktir-divide-work=cores=1 | FileCheck %s --check-prefix=ONE
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=work-div=m=1,n=4 | FileCheck %s --check-prefix=WISH
// RUN: not ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=work-div=n=17 2>&1 | FileCheck %s --check-prefix=REFUSED

// WISH: ktir.work = #ktir.work<splits = [4, 1, 1], tile = [4, 5, 64]>
// REFUSED: error: hint work_div wants 17 parts of 'n', which has 16 units of 64

// CHECK-LABEL: func.func @f_kernel0(
// CHECK-SAME: grid = [24], ktir.rows = array<i64: 5>, ktir.work = #ktir.work<splits = [8, 3, 1], tile = [2, 2, 64]>
// CHECK: %[[T:.*]] = ktdp.get_compute_tile_id : index
// CHECK: %[[ROW:.*]] = arith.divui %[[T]], %{{.*}} : index
// CHECK: %[[COLUMN:.*]] = arith.remui %[[T]], %{{.*}} : index
// CHECK: %[[STICK:.*]] = arith.muli %[[COLUMN]], %{{.*}} : index
// CHECK: ktdp.load {{.*}} -> tensor<8x2x64xf16>
// CHECK: arith.muli %[[STICK]]
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [2, 500, 64], strides: [32000, 64, 1]
// CHECK: ktdp.load {{.*}} -> tensor<2x500x64xf16>
// CHECK: tensor.pad
// CHECK: tensor.expand_shape {{.*}} output_shape [2, 8, 64, 64]
// CHECK: ktdp.load {{.*}} -> tensor<2x1x64xf16>
// CHECK: ktdp.store {{.*}} : tensor<2x2x64xf16>

// TILE: scf.for {{.*}} step %{{[^ ]*}} {
// TILE: scf.for {{.*}} -> (tensor<1x2x64xf32>) {

// ONE: ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 5, 64]>
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map5 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 499 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 499 >= 0, d1 >= 0, -d1 + 999 >= 0)>
#set2 = affine_set<(d0) : (d0 >= 0, -d0 + 999 >= 0)>
#set3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 999 >= 0)>
module attributes {ktir.level = "flat"} {
  func.func @f(%arg0: index {ktir.name = "a0", ktir.role = "input", ktir.type = tensor<5x500xf16>}, %arg1: index {ktir.name = "a1", ktir.role = "input", ktir.type = tensor<500x1000xf16>}, %arg2: index {ktir.name = "a2", ktir.role = "input", ktir.type = tensor<1000xf16>}, %arg3: index {ktir.name = "a3", ktir.role = "output", ktir.type = tensor<5x1000xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [5, 500], strides: [500, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<5x500xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<5x500xf16> -> !ktdp.access_tile<5x500xindex>
    %2 = ktdp.load %1 : <5x500xindex> -> tensor<5x500xf16>
    %3 = ktdp.construct_memory_view %arg1, sizes: [500, 1000], strides: [1000, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<500x1000xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<500x1000xf16> -> !ktdp.access_tile<500x1000xindex>
    %5 = ktdp.load %4 : <500x1000xindex> -> tensor<500x1000xf16>
    %6 = ktdp.construct_memory_view %arg2, sizes: [1000], strides: [1] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<1000xf16>
    %7 = ktdp.construct_access_tile %6[0] {access_tile_order = #map1, access_tile_set = #set2} : memref<1000xf16> -> !ktdp.access_tile<1000xindex>
    %8 = ktdp.load %7 : <1000xindex> -> tensor<1000xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %9 = tensor.empty() : tensor<5x1000xf32>
    %10 = linalg.fill ins(%cst : f32) outs(%9 : tensor<5x1000xf32>) -> tensor<5x1000xf32>
    %11 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %5 : tensor<5x500xf16>, tensor<500x1000xf16>) outs(%10 : tensor<5x1000xf32>) {
    ^bb0(%in: f16, %in_0: f16, %out: f32):
      %16 = arith.extf %in : f16 to f32
      %17 = arith.extf %in_0 : f16 to f32
      %18 = arith.mulf %16, %17 : f32
      %19 = arith.addf %out, %18 : f32
      linalg.yield %19 : f32
    } -> tensor<5x1000xf32>
    %12 = tensor.empty() : tensor<5x1000xf16>
    %13 = linalg.generic {indexing_maps = [#map, #map5, #map], iterator_types = ["parallel", "parallel"]} ins(%11, %8 : tensor<5x1000xf32>, tensor<1000xf16>) outs(%12 : tensor<5x1000xf16>) {
    ^bb0(%in: f32, %in_0: f16, %out: f16):
      %16 = arith.extf %in_0 : f16 to f32
      %17 = arith.addf %in, %16 : f32
      %18 = arith.truncf %17 : f32 to f16
      linalg.yield %18 : f16
    } -> tensor<5x1000xf16>
    %14 = ktdp.construct_memory_view %arg3, sizes: [5, 1000], strides: [1000, 1] {coordinate_set = #set3, memory_space = #ktdp.memory_space<global>} : memref<5x1000xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set3} : memref<5x1000xf16> -> !ktdp.access_tile<5x1000xindex>
    ktdp.store %13, %15 : tensor<5x1000xf16>, <5x1000xindex>
    return
  }
}
