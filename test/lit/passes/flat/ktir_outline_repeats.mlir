// RUN: ktir-opt %s --ktir-outline-repeats=saved=10 --check-semantics | FileCheck %s
// RUN: ktir-opt %s --ktir-outline-repeats=saved=10 --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ktir-opt %s --ktir-outline-repeats=saved=13 | FileCheck %s --check-prefix=LARGE
// RUN: ktir-opt %s --ktir-to-allocated="saved=10 cores=2" --check-semantics -o /dev/null

// Five layers, each with a weight of its own. What goes from one to the next is in a pool; two of them take turns.

// REMARK: remark: [ktir-outline-repeats] 4 equal parts of 4 ops are calls of '@forward_repeat0'
// LARGE-NOT: call
// CHECK-LABEL: func.func @forward_repeat0(
// CHECK-SAME: ktir.name = "w1"
// CHECK: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: ktdp.store
// CHECK: return
// CHECK-LABEL: func.func @forward(
// CHECK: ktdp.store
// CHECK: call @forward_repeat0(%arg2, [[X:%[a-z0-9]+]], [[ONE:%[a-z0-9]+]])
// CHECK-NEXT: call @forward_repeat0(%arg3, [[ONE]], [[OTHER:%[a-z0-9]+]])
// CHECK-NEXT: call @forward_repeat0(%arg4, [[OTHER]], [[ONE]])
// CHECK-NEXT: call @forward_repeat0(%arg5, [[ONE]], [[OTHER]])
// CHECK: ktdp.load
// CHECK: ktdp.store
#map = affine_map<(d0) -> (d0)>
#set = affine_set<(d0) : (d0 >= 0, -d0 + 69 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @forward(%arg0: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg1: index {ktir.name = "w0", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg2: index {ktir.name = "w1", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg3: index {ktir.name = "w2", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg4: index {ktir.name = "w3", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg5: index {ktir.name = "w4", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg6: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<70xf16>}) {
    %x = ktdp.construct_memory_view %arg0, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %xt = ktdp.construct_access_tile %x[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %h = ktdp.load %xt : <70xindex> -> tensor<70xf16>
    %v0 = ktdp.construct_memory_view %arg1, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %t0 = ktdp.construct_access_tile %v0[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %w0 = ktdp.load %t0 : <70xindex> -> tensor<70xf16>
    %e0 = tensor.empty() : tensor<70xf16>
    %h0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%h, %w0 : tensor<70xf16>, tensor<70xf16>) outs(%e0 : tensor<70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %p = arith.mulf %in, %in_0 : f16
      %s = arith.addf %p, %in : f16
      linalg.yield %s : f16
    } -> tensor<70xf16>
    %v1 = ktdp.construct_memory_view %arg2, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %t1 = ktdp.construct_access_tile %v1[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %w1 = ktdp.load %t1 : <70xindex> -> tensor<70xf16>
    %e1 = tensor.empty() : tensor<70xf16>
    %h1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%h0, %w1 : tensor<70xf16>, tensor<70xf16>) outs(%e1 : tensor<70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %p = arith.mulf %in, %in_0 : f16
      %s = arith.addf %p, %in : f16
      linalg.yield %s : f16
    } -> tensor<70xf16>
    %v2 = ktdp.construct_memory_view %arg3, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %t2 = ktdp.construct_access_tile %v2[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %w2 = ktdp.load %t2 : <70xindex> -> tensor<70xf16>
    %e2 = tensor.empty() : tensor<70xf16>
    %h2 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%h1, %w2 : tensor<70xf16>, tensor<70xf16>) outs(%e2 : tensor<70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %p = arith.mulf %in, %in_0 : f16
      %s = arith.addf %p, %in : f16
      linalg.yield %s : f16
    } -> tensor<70xf16>
    %v3 = ktdp.construct_memory_view %arg4, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %t3 = ktdp.construct_access_tile %v3[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %w3 = ktdp.load %t3 : <70xindex> -> tensor<70xf16>
    %e3 = tensor.empty() : tensor<70xf16>
    %h3 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%h2, %w3 : tensor<70xf16>, tensor<70xf16>) outs(%e3 : tensor<70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %p = arith.mulf %in, %in_0 : f16
      %s = arith.addf %p, %in : f16
      linalg.yield %s : f16
    } -> tensor<70xf16>
    %v4 = ktdp.construct_memory_view %arg5, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %t4 = ktdp.construct_access_tile %v4[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    %w4 = ktdp.load %t4 : <70xindex> -> tensor<70xf16>
    %e4 = tensor.empty() : tensor<70xf16>
    %h4 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%h3, %w4 : tensor<70xf16>, tensor<70xf16>) outs(%e4 : tensor<70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %p = arith.mulf %in, %in_0 : f16
      %s = arith.addf %p, %in : f16
      linalg.yield %s : f16
    } -> tensor<70xf16>
    %y = ktdp.construct_memory_view %arg6, sizes: [70], strides: [1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<70xf16>
    %yt = ktdp.construct_access_tile %y[0] {access_tile_order = #map, access_tile_set = #set} : memref<70xf16> -> !ktdp.access_tile<70xindex>
    ktdp.store %h4, %yt : tensor<70xf16>, <70xindex>
    return
  }
}
