// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-verify-level,ktir-allocate-scratchpad,ktir-verify-level)' | FileCheck %s
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-allocate-scratchpad,convert-ktir-to-spyre)' --check-semantics -o /dev/null

// A loop carries on from a tensor that stays in the scratchpad. The third kernel needs that as it was, so the loop begins with a copy.

// CHECK-LABEL: func.func @second
// CHECK: %[[OWN:.+]] = ktdp.construct_memory_view %c{{[0-9]+}},{{.*}}ktir.acc = #ktir.acc<SFP>
// CHECK: %[[HOME:.+]] = ktdp.construct_memory_view {{.*}}ktir.resident = #ktir.resident<name = kept
// CHECK: linalg.generic
// CHECK: %[[BEGIN:.+]] = ktdp.construct_access_tile %[[OWN]]
// CHECK: ktdp.store %{{.+}}, %[[BEGIN]]
// CHECK: scf.for
// CHECK-NOT: construct_access_tile %[[HOME]]
// CHECK-LABEL: func.func @third

#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#box = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#f = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f32, arrangement = standard, pad = zero>
#host = #ktir.host_view<arg = 0, offset = 0, size = [2, 64], strides = [64, 1]>
#host1 = #ktir.host_view<arg = 1, offset = 0, size = [2, 64], strides = [64, 1]>
#host2 = #ktir.host_view<arg = 2, offset = 0, size = [2, 64], strides = [64, 1]>
#kept = #ktir.resident<name = kept, address = 1624832, bytes = 512>
module attributes {ktir.level = "tiled"} {
  func.func @entry(%arg0: index {ktir.host = #host, ktir.layout = #f, ktir.name = "x", ktir.role = "input"},
                   %arg1: index {ktir.host = #host1, ktir.layout = #f, ktir.name = "y", ktir.role = "output"},
                   %arg2: index {ktir.host = #host2, ktir.layout = #f, ktir.name = "z", ktir.role = "output"}) {
    call @first(%arg0) : (index) -> ()
    call @second(%arg1) : (index) -> ()
    call @third(%arg2) : (index) -> ()
    return
  }
  func.func @first(%arg0: index) attributes {grid = [1], ktir.residents = [#kept], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %view = ktdp.construct_memory_view %arg0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf32>
    %tile = ktdp.construct_access_tile %view[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    %x = ktdp.load %tile : <1x2x64xindex> -> tensor<1x2x64xf32>
    %e = tensor.empty() : tensor<1x2x64xf32>
    %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<1x2x64xf32>) outs(%e : tensor<1x2x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %n = arith.negf %in : f32
      linalg.yield %n : f32
    } -> tensor<1x2x64xf32>
    %at = arith.constant 406208 : index
    %home = ktdp.construct_memory_view %at, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #kept, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf32>
    %to = ktdp.construct_access_tile %home[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    ktdp.store %y, %to : tensor<1x2x64xf32>, <1x2x64xindex>
    return
  }
  func.func @second(%arg0: index) attributes {grid = [1], ktir.residents = [#kept], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %at = arith.constant 406208 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %home = ktdp.construct_memory_view %at, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #kept, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf32>
    %from = ktdp.construct_access_tile %home[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    %begin = ktdp.load %from : <1x2x64xindex> -> tensor<1x2x64xf32>
    %sum = scf.for %i = %c0 to %c3 step %c1 iter_args(%run = %begin) -> (tensor<1x2x64xf32>) {
      %e = tensor.empty() : tensor<1x2x64xf32>
      %next = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%run : tensor<1x2x64xf32>) outs(%e : tensor<1x2x64xf32>) {
      ^bb0(%in: f32, %out: f32):
        %n = arith.addf %in, %in : f32
        linalg.yield %n : f32
      } -> tensor<1x2x64xf32>
      scf.yield %next : tensor<1x2x64xf32>
    }
    %view = ktdp.construct_memory_view %arg0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf32>
    %tile = ktdp.construct_access_tile %view[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    ktdp.store %sum, %tile : tensor<1x2x64xf32>, <1x2x64xindex>
    return
  }
  func.func @third(%arg0: index) attributes {grid = [1], ktir.residents = [#kept], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %at = arith.constant 406208 : index
    %home = ktdp.construct_memory_view %at, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #kept, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf32>
    %from = ktdp.construct_access_tile %home[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    %z = ktdp.load %from : <1x2x64xindex> -> tensor<1x2x64xf32>
    %view = ktdp.construct_memory_view %arg0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf32>
    %tile = ktdp.construct_access_tile %view[0, 0, 0] {access_tile_order = #map, access_tile_set = #box} : memref<1x2x64xf32> -> !ktdp.access_tile<1x2x64xindex>
    ktdp.store %z, %tile : tensor<1x2x64xf32>, <1x2x64xindex>
    return
  }
}
