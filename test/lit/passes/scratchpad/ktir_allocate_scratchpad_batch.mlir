// Attention of one row per head: keys and values stay in the scratchpad for a head, in slots that rotate with the batch loop, enough to hide the
// latency of memory; blocks are slices of them. Where that is too much, they get two slots, or one.
// RUN: ktir-opt %s --ktir-allocate-scratchpad --ktir-verify-level | FileCheck %s
// RUN: ktir-opt %s --ktir-allocate-scratchpad=lx-bytes=50000 --ktir-verify-level | FileCheck %s --check-prefix=TWO
// RUN: ktir-opt %s --ktir-allocate-scratchpad=lx-bytes=20480 --ktir-verify-level | FileCheck %s --check-prefix=SMALL

// CHECK: scf.for %[[H:[^ ]*]] =
// CHECK: arith.remui %[[H]], %{{.*}} : index
// CHECK: %[[K:.*]] = ktdp.construct_memory_view {{.*}} sizes: [1, 64, 64], {{.*}} ktir.rotate = #ktir.rotate<nbuf = 4, stride = 8192>
// CHECK: arith.remui %[[H]], %{{.*}} : index
// CHECK: ktdp.construct_memory_view {{.*}} sizes: [1, 64, 64], {{.*}} ktir.rotate = #ktir.rotate<nbuf = 4, stride = 8192>
// CHECK: scf.for
// CHECK: scf.for %[[N:[^ ]*]] =
// CHECK: scf.for %[[KK:[^ ]*]] =
// CHECK: %[[ROW:.*]] = arith.muli %[[N]], %{{.*}} : index
// CHECK: ktdp.construct_access_tile %[[K]][%[[KK]], %[[ROW]], 0]
// TWO-COUNT-2: ktir.rotate = #ktir.rotate<nbuf = 2, stride = 8192>
// SMALL: ktir.lx_bytes = 18432
// SMALL-NOT: stride = 8192
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2) -> (0, d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (0, d1, d2)>
#map3 = affine_map<(d0, d1, d2) -> (0, d0, d1)>
#map4 = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#map5 = affine_map<(d0, d1, d2) -> (0, d0, 0)>
#map6 = affine_map<(d0, d1, d2) -> (0, d1, 0)>
#map7 = affine_map<(d0, d1, d2) -> (0, d2, d1)>
#set = affine_set<(d0, d1, d2)[s0] : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + s0 - 1 >= 0, d2 >= 0, -d2 + 63 >= 0, d0 * -64 - d2 + 15 >= 0)>
#set1 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 63 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#set2 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "tiled"} {
  func.func @forward(%arg0: index {ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [64], strides = [1]>, ktir.layout = #ktir.layout<size = [64], device = [1, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "q", ktir.role = "input"}, %arg1: index {ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [2112], strides = [1]>, ktir.layout = #ktir.layout<size = [2112], device = [33, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "keys", ktir.role = "input"}, %arg2: index {ktir.host = #ktir.host_view<arg = 2, offset = 0, size = [2112], strides = [1]>, ktir.layout = #ktir.layout<size = [2112], device = [33, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "values", ktir.role = "input"}, %arg3: index {ktir.host = #ktir.host_view<arg = 3, offset = 0, size = [64], strides = [1]>, ktir.layout = #ktir.layout<size = [64], device = [1, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "y", ktir.role = "output"}) {
    call @kernel(%arg0, %arg1, %arg2, %arg3) : (index, index, index, index) -> ()
    return
  }
  func.func @kernel(%arg0: index, %arg1: index, %arg2: index, %arg3: index) attributes {grid = [1], ktir.rows = array<i64: 1>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 1, 64]>} {
    %0 = ktdp.get_compute_tile_id : index
    %c1 = arith.constant 1 : index
    %1 = arith.muli %0, %c1 : index
    %c1_0 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c1_1 = arith.constant 1 : index
    scf.for %arg4 = %c0 to %c4 step %c1_1 {
      %c528 = arith.constant 528 : index
      %2 = arith.muli %arg4, %c528 : index
      %c33 = arith.constant 33 : index
      %3 = arith.addi %arg1, %2 : index
      %4 = ktdp.construct_memory_view %3, sizes: [1, %c33, 64], strides: [64, 16, 1] {coordinate_set = #set, masked, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
      %c33_2 = arith.constant 33 : index
      %5 = arith.addi %arg2, %2 : index
      %6 = ktdp.construct_memory_view %5, sizes: [1, %c33_2, 64], strides: [64, 16, 1] {coordinate_set = #set, masked, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
      %7 = ktdp.construct_access_tile %4[0, 0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<1x?x64xf16> -> !ktdp.access_tile<1x64x64xindex>
      %8 = ktdp.load %7 : <1x64x64xindex> -> tensor<1x64x64xf16>
      %9 = ktdp.construct_access_tile %6[0, 0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<1x?x64xf16> -> !ktdp.access_tile<1x64x64xindex>
      %10 = ktdp.load %9 : <1x64x64xindex> -> tensor<1x64x64xf16>
      %c16 = arith.constant 16 : index
      %11 = arith.muli %arg4, %c16 : index
      %c16_3 = arith.constant 16 : index
      %12 = arith.muli %1, %c16_3 : index
      %13 = arith.addi %11, %12 : index
      %14 = arith.addi %arg0, %13 : index
      %15 = ktdp.construct_memory_view %14, sizes: [1, %c1_0, 64], strides: [64, 16, 1] {coordinate_set = #set, masked, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
      %c64 = arith.constant 64 : index
      %16 = arith.muli %1, %c64 : index
      %c16_4 = arith.constant 16 : index
      %17 = arith.muli %arg4, %c16_4 : index
      %18 = arith.addi %16, %17 : index
      %19 = arith.addi %arg3, %18 : index
      %20 = ktdp.construct_memory_view %19, sizes: [1, %c1_0, 64], strides: [64, 64, 1] {coordinate_set = #set, masked, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
      %c0_5 = arith.constant 0 : index
      %c1_6 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      scf.for %arg5 = %c0_5 to %c1_6 step %c2 {
        %21 = ktdp.construct_access_tile %15[0, %arg5, 0] {access_tile_order = #map, access_tile_set = #set2} : memref<1x?x64xf16> -> !ktdp.access_tile<1x2x64xindex>
        %22 = ktdp.load %21 : <1x2x64xindex> -> tensor<1x2x64xf16>
        %23 = tensor.empty() : tensor<1x2x64xf16>
        %c0_7 = arith.constant 0 : index
        %c1_8 = arith.constant 1 : index
        %c1_9 = arith.constant 1 : index
        %24 = scf.for %arg6 = %c0_7 to %c1_8 step %c1_9 iter_args(%arg7 = %23) -> (tensor<1x2x64xf16>) {
          %cst_14 = arith.constant 0.000000e+00 : f32
          %40 = tensor.empty() : tensor<1x2x64xf32>
          %41 = linalg.fill ins(%cst_14 : f32) outs(%40 : tensor<1x2x64xf32>) -> tensor<1x2x64xf32>
          %c0_15 = arith.constant 0 : index
          %c1_16 = arith.constant 1 : index
          %c1_17 = arith.constant 1 : index
          %42 = scf.for %arg8 = %c0_15 to %c1_16 step %c1_17 iter_args(%arg9 = %41) -> (tensor<1x2x64xf32>) {
            %extracted_slice = tensor.extract_slice %22[%arg8, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf16> to tensor<1x2x64xf16>
            %c64_18 = arith.constant 64 : index
            %45 = arith.muli %arg6, %c64_18 : index
            %extracted_slice_19 = tensor.extract_slice %8[%arg8, %45, 0] [1, 64, 64] [1, 1, 1] : tensor<1x64x64xf16> to tensor<1x64x64xf16>
            %46 = linalg.generic {indexing_maps = [#map1, #map2, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%extracted_slice, %extracted_slice_19 : tensor<1x2x64xf16>, tensor<1x64x64xf16>) outs(%arg9 : tensor<1x2x64xf32>) {
            ^bb0(%in: f16, %in_20: f16, %out: f32):
              %47 = arith.extf %in : f16 to f32
              %48 = arith.extf %in_20 : f16 to f32
              %49 = arith.mulf %47, %48 : f32
              %50 = arith.addf %out, %49 : f32
              linalg.yield %50 : f32
            } -> tensor<1x2x64xf32>
            scf.yield %46 : tensor<1x2x64xf32>
          }
          %43 = tensor.empty() : tensor<1x2x64xf16>
          %44 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%42 : tensor<1x2x64xf32>) outs(%43 : tensor<1x2x64xf16>) {
          ^bb0(%in: f32, %out: f16):
            %45 = arith.truncf %in : f32 to f16
            linalg.yield %45 : f16
          } -> tensor<1x2x64xf16>
          %inserted_slice = tensor.insert_slice %44 into %arg7[%arg6, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf16> into tensor<1x2x64xf16>
          scf.yield %inserted_slice : tensor<1x2x64xf16>
        }
        %25 = tensor.empty() : tensor<1x2x64xf32>
        %26 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%24 : tensor<1x2x64xf16>) outs(%25 : tensor<1x2x64xf32>) {
        ^bb0(%in: f16, %out: f32):
          %40 = linalg.index 0 : index
          %41 = linalg.index 2 : index
          %c64_14 = arith.constant 64 : index
          %42 = arith.muli %40, %c64_14 : index
          %43 = arith.addi %42, %41 : index
          %c33_15 = arith.constant 33 : index
          %44 = arith.cmpi ult, %43, %c33_15 : index
          %45 = arith.extf %in : f16 to f32
          %cst_16 = arith.constant 0xFF800000 : f32
          %46 = arith.select %44, %45, %cst_16 : f32
          linalg.yield %46 : f32
        } -> tensor<1x2x64xf32>
        %cst = arith.constant 0xFF800000 : f32
        %27 = tensor.empty() : tensor<1x2x64xf32>
        %28 = linalg.fill ins(%cst : f32) outs(%27 : tensor<1x2x64xf32>) -> tensor<1x2x64xf32>
        %29 = linalg.generic {indexing_maps = [#map4, #map5], iterator_types = ["parallel", "reduction", "reduction"]} ins(%26 : tensor<1x2x64xf32>) outs(%28 : tensor<1x2x64xf32>) {
        ^bb0(%in: f32, %out: f32):
          %40 = arith.maximumf %out, %in : f32
          linalg.yield %40 : f32
        } -> tensor<1x2x64xf32>
        %30 = tensor.empty() : tensor<1x2x64xf32>
        %31 = linalg.generic {indexing_maps = [#map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%26, %29 : tensor<1x2x64xf32>, tensor<1x2x64xf32>) outs(%30 : tensor<1x2x64xf32>) {
        ^bb0(%in: f32, %in_14: f32, %out: f32):
          %40 = arith.subf %in, %in_14 : f32
          %41 = math.exp %40 : f32
          linalg.yield %41 : f32
        } -> tensor<1x2x64xf32>
        %cst_10 = arith.constant 0.000000e+00 : f32
        %32 = tensor.empty() : tensor<1x2x64xf32>
        %33 = linalg.fill ins(%cst_10 : f32) outs(%32 : tensor<1x2x64xf32>) -> tensor<1x2x64xf32>
        %34 = linalg.generic {indexing_maps = [#map4, #map5], iterator_types = ["parallel", "reduction", "reduction"]} ins(%31 : tensor<1x2x64xf32>) outs(%33 : tensor<1x2x64xf32>) {
        ^bb0(%in: f32, %out: f32):
          %40 = arith.addf %out, %in : f32
          linalg.yield %40 : f32
        } -> tensor<1x2x64xf32>
        %35 = tensor.empty() : tensor<1x2x64xf16>
        %36 = linalg.generic {indexing_maps = [#map, #map6, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%31, %34 : tensor<1x2x64xf32>, tensor<1x2x64xf32>) outs(%35 : tensor<1x2x64xf16>) {
        ^bb0(%in: f32, %in_14: f32, %out: f16):
          %40 = arith.divf %in, %in_14 : f32
          %41 = arith.truncf %40 : f32 to f16
          linalg.yield %41 : f16
        } -> tensor<1x2x64xf16>
        %37 = tensor.empty() : tensor<1x2x64xf16>
        %c0_11 = arith.constant 0 : index
        %c1_12 = arith.constant 1 : index
        %c1_13 = arith.constant 1 : index
        %38 = scf.for %arg6 = %c0_11 to %c1_12 step %c1_13 iter_args(%arg7 = %37) -> (tensor<1x2x64xf16>) {
          %cst_14 = arith.constant 0.000000e+00 : f32
          %40 = tensor.empty() : tensor<1x2x64xf32>
          %41 = linalg.fill ins(%cst_14 : f32) outs(%40 : tensor<1x2x64xf32>) -> tensor<1x2x64xf32>
          %c0_15 = arith.constant 0 : index
          %c1_16 = arith.constant 1 : index
          %c1_17 = arith.constant 1 : index
          %42 = scf.for %arg8 = %c0_15 to %c1_16 step %c1_17 iter_args(%arg9 = %41) -> (tensor<1x2x64xf32>) {
            %extracted_slice = tensor.extract_slice %36[%arg8, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf16> to tensor<1x2x64xf16>
            %c64_18 = arith.constant 64 : index
            %45 = arith.muli %arg8, %c64_18 : index
            %extracted_slice_19 = tensor.extract_slice %10[%arg6, %45, 0] [1, 64, 64] [1, 1, 1] : tensor<1x64x64xf16> to tensor<1x64x64xf16>
            %46 = linalg.generic {indexing_maps = [#map1, #map7, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%extracted_slice, %extracted_slice_19 : tensor<1x2x64xf16>, tensor<1x64x64xf16>) outs(%arg9 : tensor<1x2x64xf32>) {
            ^bb0(%in: f16, %in_20: f16, %out: f32):
              %47 = arith.extf %in : f16 to f32
              %48 = arith.extf %in_20 : f16 to f32
              %49 = arith.mulf %47, %48 : f32
              %50 = arith.addf %out, %49 : f32
              linalg.yield %50 : f32
            } -> tensor<1x2x64xf32>
            scf.yield %46 : tensor<1x2x64xf32>
          }
          %43 = tensor.empty() : tensor<1x2x64xf16>
          %44 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%42 : tensor<1x2x64xf32>) outs(%43 : tensor<1x2x64xf16>) {
          ^bb0(%in: f32, %out: f16):
            %45 = arith.truncf %in : f32 to f16
            linalg.yield %45 : f16
          } -> tensor<1x2x64xf16>
          %inserted_slice = tensor.insert_slice %44 into %arg7[%arg6, 0, 0] [1, 2, 64] [1, 1, 1] : tensor<1x2x64xf16> into tensor<1x2x64xf16>
          scf.yield %inserted_slice : tensor<1x2x64xf16>
        }
        %39 = ktdp.construct_access_tile %20[0, %arg5, 0] {access_tile_order = #map, access_tile_set = #set2} : memref<1x?x64xf16> -> !ktdp.access_tile<1x2x64xindex>
        ktdp.store %38, %39 : tensor<1x2x64xf16>, <1x2x64xindex>
      }
    }
    return
  }
}

