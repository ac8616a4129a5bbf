// The 4 sticks of the reduced loop in two parts: neighbouring cores have partial sums, the first one of two adds them and stores.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=work-div=k=2 --ktir-divide-work=work-div=k=2 | FileCheck %s
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=work-div=k=2 --ktir-divide-work=work-div=k=2 --ktir-tile --ktir-allocate-scratchpad --ktir-verify-level | FileCheck %s --check-prefix=LX
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=work-div=k=2 --ktir-divide-work=work-div=k=2 --ktir-tile --ktir-allocate-scratchpad --convert-ktir-to-spyre | FileCheck %s --check-prefix=STREAM
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=work-div=k=4 --ktir-divide-work=work-div=k=4 --ktir-tile | FileCheck %s --check-prefix=FOUR
// RUN: not ktir-opt %s --ktir-assign-layouts --ktir-form-kernels=work-div=k=3 --ktir-divide-work=work-div=k=3 2>&1 | FileCheck %s --check-prefix=REFUSED

// REFUSED: error: hint work_div wants 3 parts of 'k', but equal shares of its 4 units give 2

// CHECK-DAG: #[[GROUP:.*]] = affine_set<(d0)[s0] : (d0 - s0 * 2 >= 0, -d0 + s0 * 2 + 1 >= 0)>
// CHECK-DAG: #[[FIRST:.*]] = affine_set<(d0)[s0] : (d0 - s0 * 2 == 0)>
// CHECK-LABEL: func.func @f_kernel0(
// CHECK-SAME: grid = [8], ktir.rows = array<i64: 3>, ktir.sums = 2 : i64, ktir.work = #ktir.work<splits = [2, 2, 1], tile = [1, 2, 64]>
// CHECK: %[[T:.*]] = ktdp.get_compute_tile_id : index
// CHECK: %[[PART:.*]] = arith.remui %[[T]], %{{.*}} : index
// CHECK: %[[LATER:.*]] = arith.minsi %[[PART]], %{{.*}} : index
// CHECK: %[[LEADER:.*]] = arith.subi %{{.*}}, %[[LATER]] : index
// CHECK: ktdp.load {{.*}} -> tensor<2x2x64xf16>
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [1, %{{.*}}, 64], strides: [12800, 64, 1] {coordinate_set = #{{.*}}, masked
// CHECK: ktdp.load {{.*}} -> tensor<1x128x64xf16>
// CHECK: %[[PARTIAL:.*]] = linalg.generic
// CHECK: %[[FUTURE:.*]] = ktdp.inter_tile_produce producer_tiles_per_group = #[[GROUP]] -> <(tensor<1x2x64xf32>), groups = #{{.*}}> {
// CHECK: ktdp.yield_partial %[[PARTIAL]] : tensor<1x2x64xf32>
// CHECK: ktdp.inter_tile_reduce(%[[FUTURE]]) consumer_tiles_per_group = #[[FIRST]], identity(
// CHECK: arith.addf
// CHECK: ktdp.yield_reduced
// CHECK: %[[OWN:.*]] = arith.muli %{{.*}}, %[[LEADER]] : index
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [{{.*}}, %[[OWN]], 64]

// LX: %[[SENT:.*]] = ktdp.load %{{.*}} : <1x2x64xindex> -> tensor<1x2x64xf32>
// LX-NEXT: %[[F:.*]] = ktdp.inter_tile_produce
// LX: ktdp.yield_partial %[[SENT]]
// LX: %[[CAME:.*]] = ktdp.inter_tile_consume(%[[F]])
// LX: ktdp.store %[[CAME]], %{{.*}} : tensor<1x2x64xf32>

// STREAM: spyre.group [1, 1, 3, 3, 5, 5, 7, 7]
// STREAM: spyre.move dst = [[TO:.*]] group = [[G:.*]]
// STREAM: spyre.move src = {{.*}} group = [[G]]

// Three parts arrive; two are added by one op, the third by the next.
// FOUR-COUNT-3: ktdp.inter_tile_consume
// FOUR: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x64xf32>, tensor<1x2x64xf32>, tensor<1x2x64xf32>)
// FOUR: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x2x64xf32>, tensor<1x2x64xf32>)
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map4 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map5 = affine_map<(d0, d1) -> (d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 199 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 199 >= 0, d1 >= 0, -d1 + 69 >= 0)>
#set2 = affine_set<(d0) : (d0 >= 0, -d0 + 69 >= 0)>
#set3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 69 >= 0)>
module attributes {ktir.level = "flat"} {
  func.func @f(%arg0: index {ktir.name = "a0", ktir.role = "input", ktir.type = tensor<3x200xf16>}, %arg1: index {ktir.name = "a1", ktir.role = "input", ktir.type = tensor<200x70xf16>}, %arg2: index {ktir.name = "a2", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg3: index {ktir.name = "a3", ktir.role = "output", ktir.type = tensor<3x70xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [3, 200], strides: [200, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<3x200xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<3x200xf16> -> !ktdp.access_tile<3x200xindex>
    %2 = ktdp.load %1 : <3x200xindex> -> tensor<3x200xf16>
    %3 = ktdp.construct_memory_view %arg1, sizes: [200, 70], strides: [70, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<200x70xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<200x70xf16> -> !ktdp.access_tile<200x70xindex>
    %5 = ktdp.load %4 : <200x70xindex> -> tensor<200x70xf16>
    %6 = ktdp.construct_memory_view %arg2, sizes: [70], strides: [1] {coordinate_set = #set2, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %7 = ktdp.construct_access_tile %6[0] {access_tile_order = #map1, access_tile_set = #set2} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %8 = ktdp.load %7 : <70xindex> -> tensor<70xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %9 = tensor.empty() : tensor<3x70xf32>
    %10 = linalg.fill ins(%cst : f32) outs(%9 : tensor<3x70xf32>) -> tensor<3x70xf32>
    %11 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %5 : tensor<3x200xf16>, tensor<200x70xf16>) outs(%10 : tensor<3x70xf32>) {
    ^bb0(%in: f16, %in_0: f16, %out: f32):
      %16 = arith.extf %in : f16 to f32
      %17 = arith.extf %in_0 : f16 to f32
      %18 = arith.mulf %16, %17 : f32
      %19 = arith.addf %out, %18 : f32
      linalg.yield %19 : f32
    } -> tensor<3x70xf32>
    %12 = tensor.empty() : tensor<3x70xf16>
    %13 = linalg.generic {indexing_maps = [#map, #map5, #map], iterator_types = ["parallel", "parallel"]} ins(%11, %8 : tensor<3x70xf32>, tensor<70xf16>) outs(%12 : tensor<3x70xf16>) {
    ^bb0(%in: f32, %in_0: f16, %out: f16):
      %16 = arith.extf %in_0 : f16 to f32
      %17 = arith.addf %in, %16 : f32
      %18 = arith.truncf %17 : f32 to f16
      linalg.yield %18 : f16
    } -> tensor<3x70xf16>
    %14 = ktdp.construct_memory_view %arg3, sizes: [3, 70], strides: [70, 1] {coordinate_set = #set3, memory_space = #ktdp.memory_space<global>} : memref<3x70xf16>
    %15 = ktdp.construct_access_tile %14[0, 0] {access_tile_order = #map, access_tile_set = #set3} : memref<3x70xf16> -> !ktdp.access_tile<3x70xindex>
    ktdp.store %13, %15 : tensor<3x70xf16>, <3x70xindex>
    return
  }
}
