// A softmax over blocks of keys: four of 8 sticks of 64 keys each, then 42 keys in a masked stick. The scores of a block are multiplied
// while the vector unit has those of the one before.
// RUN: ktir-opt %s --ktir-to-allocated='cores=1 online-softmax=always' --ktir-stop-after=ktir-tile | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated='cores=1 online-softmax=always' | FileCheck %s --check-prefix=ALLOCATED
// RUN: ktir-opt %s --ktir-to-allocated='cores=1 online-softmax=never' --ktir-stop-after=ktir-tile | FileCheck %s --check-prefix=NEVER
// RUN: ktir-opt %s --ktir-to-allocated='cores=1 online-softmax=always' --check-semantics -o /dev/null
// RUN: ktir-opt %s --ktir-to-allocated='cores=1' --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=AUTO
// RUN: ktir-opt %s --ktir-to-allocated=cores=1 --ktir-stop-after=ktir-keep-resident | ktir-opt - --ktir-tile=lx-bytes=160000 --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEEDED
// RUN: not ktir-opt %s --ktir-tile=online-softmax=perhaps 2>&1 | FileCheck %s --check-prefix=OPTION

// AUTO: remark: {{.*}}softmax over blocks of 512 keys, 4 rows at once: {{.*}} cycles, {{.*}}; the runner-up is a softmax of whole rows of scores, 4 rows
// NEEDED: remark: {{.*}}softmax over blocks of {{.*}}; no two whole rows of scores fit the scratchpad
// OPTION: option 'online-softmax' expects one of auto, always, never, but got 'perhaps'
// NEVER-NOT: ktir.tolerance
// NEVER: tensor<33x4x64xf32>

// CHECK: ktir.tolerance = 0.001953125 : f64
// CHECK-NOT: tensor<33x
// CHECK: scf.for
// Scores of the first block, scaled as they leave the accumulator, and their maximum.
// CHECK: %[[SCORES:.*]] = scf.for %{{.*}} -> (tensor<8x4x64xf32>)
// CHECK: %[[BLOCK:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[SCORES]] : tensor<8x4x64xf32>)
// CHECK: %[[LOW:.*]] = arith.constant -3.40282347E+38 : f32
// CHECK: %[[MOST:.*]] = linalg.fill ins(%[[LOW]]
// CHECK: %[[SUM:.*]] = linalg.fill
// CHECK: %[[PRODUCT:.*]] = linalg.fill
// CHECK: %[[NOW:.*]] = linalg.generic {{.*}} ins(%[[MOST]], %[[BLOCK]]
// CHECK: %[[C3:.*]] = arith.constant 3 : index
// CHECK: %[[LOOP:.*]]:5 = scf.for %[[I:.*]] = %{{.*}} to %[[C3]] step %{{.*}} iter_args(%[[S:.*]] = %[[SCORES]], %[[M:.*]] = %[[MOST]], %[[N:.*]] = %[[NOW]], %[[T:.*]] = %[[SUM]], %[[P:.*]] = %[[PRODUCT]])
// Stick by stick: products for the next block's scores, this block's weights, and the new scores where the old ones were.
// CHECK: %[[STICKS:.*]]:3 = scf.for %[[STICK:.*]] = %{{.*}} iter_args(%[[NEXT:.*]] = %[[S]],
// CHECK: %[[PRODUCTS:.*]] = linalg.generic {{.*}}"reduction"]}
// CHECK: %[[OLD:.*]] = tensor.extract_slice %[[S]][%[[STICK]]
// CHECK: linalg.generic {{.*}} ins(%[[OLD]], %[[N]]
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.subf
// CHECK-NEXT: math.exp
// CHECK: %[[SCALED:.*]] = linalg.generic {{.*}} ins(%[[PRODUCTS]]
// CHECK: tensor.insert_slice %[[SCALED]] into %[[NEXT]][%[[STICK]]
// Products of weights and values in a row; beside them the factor, the sums and the next maximum.
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[WEIGHTS:.*]], %{{.*}} : tensor<1x4x64xf16>
// CHECK: %[[FACTOR:.*]] = linalg.generic {{.*}} ins(%[[M]], %[[N]]
// CHECK: math.exp
// CHECK: %[[SECOND:.*]] = linalg.generic {{.*}}"reduction"]} {{.*}} outs(%[[FIRST]]
// CHECK: %[[THIRD:.*]] = linalg.generic {{.*}}"reduction"]} {{.*}} outs(%[[SECOND]]
// CHECK: %[[PART:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[STICKS]]#1
// CHECK: linalg.generic {{.*}}"reduction"]} {{.*}} outs(%[[THIRD]]
// CHECK: %[[TOTAL:.*]] = linalg.generic {{.*}} ins(%[[T]], %[[FACTOR]], %[[PART]]
// CHECK: %[[BEFORE:.*]] = linalg.generic {{.*}} ins(%[[N]] :
// CHECK: %[[AHEAD:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[STICKS]]#0
// CHECK: linalg.generic {{.*}} ins(%[[N]], %[[AHEAD]]
// CHECK: scf.yield %[[STICKS]]#0, %[[BEFORE]], %{{.*}}, %[[TOTAL]], %{{.*}} :
// The rest.
// CHECK: arith.constant 42 : index
// CHECK: arith.cmpi ult
// CHECK: arith.divf

// What the loop carries has a place of its own.
// ALLOCATED-COUNT-3: ktir.acc = #ktir.acc<SFP>, memory_space = #ktdp.memory_space<ct_local>
// ALLOCATED-NOT: iter_args{{.*}}tensor<1x4x64xf32>, tensor
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> (d0)>
#map5 = affine_map<(d0, d1, d2) -> (d2, d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2089 >= 0, d1 >= 0, -d1 + 63 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @f(%arg0: index {ktir.name = "a0", ktir.role = "input", ktir.type = tensor<4x64xf16>}, %arg1: index {ktir.name = "a1", ktir.role = "input", ktir.type = tensor<2090x64xf16>}, %arg2: index {ktir.name = "a2", ktir.role = "input", ktir.type = tensor<2090x64xf16>}, %arg3: index {ktir.name = "a3", ktir.role = "output", ktir.type = tensor<4x64xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [4, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
    %2 = ktdp.load %1 : <4x64xindex> -> tensor<4x64xf16>
    %3 = ktdp.construct_memory_view %arg1, sizes: [2090, 64], strides: [64, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<2090x64xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<2090x64xf16> -> !ktdp.access_tile<2090x64xindex>
    %5 = ktdp.load %4 : <2090x64xindex> -> tensor<2090x64xf16>
    %6 = ktdp.construct_memory_view %arg2, sizes: [2090, 64], strides: [64, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<2090x64xf16>
    %7 = ktdp.construct_access_tile %6[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<2090x64xf16> -> !ktdp.access_tile<2090x64xindex>
    %8 = ktdp.load %7 : <2090x64xindex> -> tensor<2090x64xf16>
    %cst = arith.constant 0.000000e+00 : f32
    %9 = tensor.empty() : tensor<4x2090xf32>
    %10 = linalg.fill ins(%cst : f32) outs(%9 : tensor<4x2090xf32>) -> tensor<4x2090xf32>
    %11 = linalg.generic {indexing_maps = [#map1, #map2, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%2, %5 : tensor<4x64xf16>, tensor<2090x64xf16>) outs(%10 : tensor<4x2090xf32>) {
    ^bb0(%in: f16, %in_3: f16, %out: f32):
      %31 = arith.extf %in : f16 to f32
      %32 = arith.extf %in_3 : f16 to f32
      %33 = arith.mulf %31, %32 : f32
      %34 = arith.addf %out, %33 : f32
      linalg.yield %34 : f32
    } -> tensor<4x2090xf32>
    %12 = tensor.empty() : tensor<4x2090xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%11 : tensor<4x2090xf32>) outs(%12 : tensor<4x2090xf32>) {
    ^bb0(%in: f32, %out: f32):
      %cst_3 = arith.constant 1.250000e-01 : f32
      %31 = arith.mulf %in, %cst_3 : f32
      %cst_4 = arith.constant 1.000000e+00 : f32
      %32 = arith.mulf %31, %cst_4 : f32
      linalg.yield %32 : f32
    } -> tensor<4x2090xf32>
    %cst_0 = arith.constant 0xFF800000 : f32
    %14 = tensor.empty() : tensor<4xf32>
    %15 = linalg.fill ins(%cst_0 : f32) outs(%14 : tensor<4xf32>) -> tensor<4xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "reduction"]} ins(%13 : tensor<4x2090xf32>) outs(%15 : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %31 = arith.maximumf %out, %in : f32
      linalg.yield %31 : f32
    } -> tensor<4xf32>
    %17 = tensor.empty() : tensor<4x2090xf32>
    %18 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel"]} ins(%13, %16 : tensor<4x2090xf32>, tensor<4xf32>) outs(%17 : tensor<4x2090xf32>) {
    ^bb0(%in: f32, %in_3: f32, %out: f32):
      %31 = arith.subf %in, %in_3 : f32
      %32 = math.exp %31 : f32
      linalg.yield %32 : f32
    } -> tensor<4x2090xf32>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %19 = tensor.empty() : tensor<4xf32>
    %20 = linalg.fill ins(%cst_1 : f32) outs(%19 : tensor<4xf32>) -> tensor<4xf32>
    %21 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "reduction"]} ins(%18 : tensor<4x2090xf32>) outs(%20 : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %31 = arith.addf %out, %in : f32
      linalg.yield %31 : f32
    } -> tensor<4xf32>
    %22 = tensor.empty() : tensor<4x2090xf16>
    %23 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel"]} ins(%18, %21 : tensor<4x2090xf32>, tensor<4xf32>) outs(%22 : tensor<4x2090xf16>) {
    ^bb0(%in: f32, %in_3: f32, %out: f16):
      %31 = arith.divf %in, %in_3 : f32
      %32 = arith.truncf %31 : f32 to f16
      linalg.yield %32 : f16
    } -> tensor<4x2090xf16>
    %cst_2 = arith.constant 0.000000e+00 : f32
    %24 = tensor.empty() : tensor<4x64xf32>
    %25 = linalg.fill ins(%cst_2 : f32) outs(%24 : tensor<4x64xf32>) -> tensor<4x64xf32>
    %26 = linalg.generic {indexing_maps = [#map1, #map5, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%23, %8 : tensor<4x2090xf16>, tensor<2090x64xf16>) outs(%25 : tensor<4x64xf32>) {
    ^bb0(%in: f16, %in_3: f16, %out: f32):
      %31 = arith.extf %in : f16 to f32
      %32 = arith.extf %in_3 : f16 to f32
      %33 = arith.mulf %31, %32 : f32
      %34 = arith.addf %out, %33 : f32
      linalg.yield %34 : f32
    } -> tensor<4x64xf32>
    %27 = tensor.empty() : tensor<4x64xf16>
    %28 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%26 : tensor<4x64xf32>) outs(%27 : tensor<4x64xf16>) {
    ^bb0(%in: f32, %out: f16):
      %31 = arith.truncf %in : f32 to f16
      linalg.yield %31 : f16
    } -> tensor<4x64xf16>
    %29 = ktdp.construct_memory_view %arg3, sizes: [4, 64], strides: [64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
    %30 = ktdp.construct_access_tile %29[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<4x64xf16> -> !ktdp.access_tile<4x64xindex>
    ktdp.store %28, %30 : tensor<4x64xf16>, <4x64xindex>
    return
  }
}
