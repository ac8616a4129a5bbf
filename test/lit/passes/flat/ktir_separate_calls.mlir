// RUN: ktir-opt %s --ktir-separate-calls | FileCheck %s
// RUN: ktir-opt %s --ktir-separate-calls --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS
// RUN: ktir-opt %s --ktir-to-allocated=cores=3 --check-semantics | FileCheck %s --check-prefix=ALLOCATED
// RUN: ktir-opt %s --ktir-to-allocated=cores=3 -o %t.mlir
// RUN: ktir-explain %t.mlir | FileCheck %s --check-prefix=EXPLAIN

// An entry with ops of its own between calls, a function that calls another one twice, parts of one argument, a value that lives across calls.

// REMARKS-DAG: remark: [ktir-separate-calls] '@layer' is planned once for 4 runs
// REMARKS-DAG: remark: [ktir-separate-calls] '@two' is planned once for 2 runs
// REMARKS-DAG: remark: [ktir-separate-calls] '@main_part0' is planned once for 1 run

// CHECK-LABEL: func.func private @layer(
// CHECK-SAME: ktir.name = "x", ktir.role = "shared"
// CHECK-SAME: ktir.name = "w", ktir.role = "input"
// CHECK-SAME: ktir.name = "y", ktir.role = "shared"
// CHECK-LABEL: func.func private @turn(
// CHECK-SAME: ktir.name = "y", ktir.role = "output"
// CHECK-LABEL: func.func private @two(
// CHECK: call @layer
// CHECK: call @layer
// CHECK-LABEL: func.func private @main_part0(
// CHECK: linalg.generic
// CHECK-LABEL: func.func private @main_part1(
// CHECK-LABEL: func.func private @main_part3(
// CHECK-LABEL: func.func @main(
// CHECK-SAME: ktir.name = "pool0", ktir.role = "pool", ktir.type = tensor<13x70xf16>
// CHECK-NOT: linalg
// CHECK-NOT: ktdp
// CHECK: call @main_part0
// CHECK: call @two
// CHECK: call @main_part1
// CHECK: call @two
// CHECK: call @turn
// CHECK: call @main_part3

// ALLOCATED: call @layer_kernel0
// ALLOCATED: func.func @layer_kernel0(
// ALLOCATED-NOT: func.func @layer_kernel

// EXPLAIN: program 'main' on datasheet: 5 kernels in 8 runs
// EXPLAIN: function 'layer': 4 runs, each of 1 call
// EXPLAIN: function 'two': 2 runs, each of 2 calls
// EXPLAIN: kernel 'layer_kernel0', 4 times
// EXPLAIN-NOT: kernel 'layer_kernel0'
#map = affine_map<(d0, d1) -> (d0, d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 12 >= 0, d1 >= 0, -d1 + 69 >= 0)>
#set1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 69 >= 0, d1 >= 0, -d1 + 12 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @layer(%arg0: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<13x70xf16>}, %arg1: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<70xf16>}, %arg2: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<13x70xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    %2 = ktdp.load %1 : <13x70xindex> -> tensor<13x70xf16>
    %3 = ktdp.construct_memory_view %arg1, sizes: [13, 70], strides: [0, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %4 = ktdp.construct_access_tile %3[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    %5 = ktdp.load %4 : <13x70xindex> -> tensor<13x70xf16>
    %6 = tensor.empty() : tensor<13x70xf16>
    %7 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%2, %5 : tensor<13x70xf16>, tensor<13x70xf16>) outs(%6 : tensor<13x70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %12 = arith.mulf %in, %in_0 : f16
      linalg.yield %12 : f16
    } -> tensor<13x70xf16>
    %8 = tensor.empty() : tensor<13x70xf16>
    %9 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%7, %2 : tensor<13x70xf16>, tensor<13x70xf16>) outs(%8 : tensor<13x70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %12 = arith.addf %in, %in_0 : f16
      linalg.yield %12 : f16
    } -> tensor<13x70xf16>
    %10 = ktdp.construct_memory_view %arg2, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %11 = ktdp.construct_access_tile %10[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    ktdp.store %9, %11 : tensor<13x70xf16>, <13x70xindex>
    return
  }
  func.func @turn(%arg0: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<13x70xf16>}, %arg1: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<70x13xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [70, 13], strides: [1, 70] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<70x13xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<70x13xf16> -> !ktdp.access_tile<70x13xindex>
    %2 = ktdp.load %1 : <70x13xindex> -> tensor<70x13xf16>
    %3 = tensor.empty() : tensor<70x13xf16>
    %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<70x13xf16>) outs(%3 : tensor<70x13xf16>) {
    ^bb0(%in: f16, %out: f16):
      %7 = math.exp %in : f16
      linalg.yield %7 : f16
    } -> tensor<70x13xf16>
    %5 = ktdp.construct_memory_view %arg1, sizes: [70, 13], strides: [13, 1] {coordinate_set = #set1, memory_space = #ktdp.memory_space<global>} : memref<70x13xf16>
    %6 = ktdp.construct_access_tile %5[0, 0] {access_tile_order = #map, access_tile_set = #set1} : memref<70x13xf16> -> !ktdp.access_tile<70x13xindex>
    ktdp.store %4, %6 : tensor<70x13xf16>, <70x13xindex>
    return
  }
  func.func @two(%arg0: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<13x70xf16>}, %arg1: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<2x70xf16>}, %arg2: index {ktir.name = "h", ktir.role = "output", ktir.type = tensor<13x70xf16>}, %arg3: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<13x70xf16>}) {
    %c70 = arith.constant 70 : index
    %0 = arith.addi %arg1, %c70 : index
    call @layer(%arg0, %arg1, %arg2) : (index, index, index) -> ()
    call @layer(%arg2, %0, %arg3) : (index, index, index) -> ()
    return
  }
  func.func @main(%arg0: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<13x70xf16>}, %arg1: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<4x70xf16>}, %arg2: index {ktir.name = "p0", ktir.role = "pool", ktir.type = tensor<13x70xf16>}, %arg3: index {ktir.name = "p1", ktir.role = "pool", ktir.type = tensor<13x70xf16>}, %arg4: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<13x70xf16>}, %arg5: index {ktir.name = "z", ktir.role = "output", ktir.type = tensor<70x13xf16>}, %arg6: index {ktir.name = "mid", ktir.role = "output", ktir.type = tensor<13x70xf16>}) {
    %0 = ktdp.construct_memory_view %arg0, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    %2 = ktdp.load %1 : <13x70xindex> -> tensor<13x70xf16>
    %3 = tensor.empty() : tensor<13x70xf16>
    %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<13x70xf16>) outs(%3 : tensor<13x70xf16>) {
    ^bb0(%in: f16, %out: f16):
      %22 = math.exp %in : f16
      linalg.yield %22 : f16
    } -> tensor<13x70xf16>
    %5 = ktdp.construct_memory_view %arg2, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %6 = ktdp.construct_access_tile %5[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    ktdp.store %4, %6 : tensor<13x70xf16>, <13x70xindex>
    %c140 = arith.constant 140 : index
    %7 = arith.addi %arg1, %c140 : index
    call @two(%arg2, %arg1, %arg6, %arg3) : (index, index, index, index) -> ()
    %8 = ktdp.construct_memory_view %arg3, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %9 = ktdp.construct_access_tile %8[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    %10 = ktdp.load %9 : <13x70xindex> -> tensor<13x70xf16>
    %11 = tensor.empty() : tensor<13x70xf16>
    %12 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%10, %4 : tensor<13x70xf16>, tensor<13x70xf16>) outs(%11 : tensor<13x70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %22 = arith.addf %in, %in_0 : f16
      linalg.yield %22 : f16
    } -> tensor<13x70xf16>
    %13 = ktdp.construct_memory_view %arg2, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %14 = ktdp.construct_access_tile %13[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    ktdp.store %12, %14 : tensor<13x70xf16>, <13x70xindex>
    call @two(%arg2, %7, %arg3, %arg4) : (index, index, index, index) -> ()
    call @turn(%arg3, %arg5) : (index, index) -> ()
    %15 = ktdp.construct_memory_view %arg3, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %16 = ktdp.construct_access_tile %15[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    %17 = ktdp.load %16 : <13x70xindex> -> tensor<13x70xf16>
    %18 = tensor.empty() : tensor<13x70xf16>
    %19 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%17, %12 : tensor<13x70xf16>, tensor<13x70xf16>) outs(%18 : tensor<13x70xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %22 = arith.mulf %in, %in_0 : f16
      linalg.yield %22 : f16
    } -> tensor<13x70xf16>
    %c0 = arith.constant 0 : index
    %20 = ktdp.construct_memory_view %arg6, sizes: [13, 70], strides: [70, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<13x70xf16>
    %21 = ktdp.construct_access_tile %20[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<13x70xf16> -> !ktdp.access_tile<13x70xindex>
    ktdp.store %19, %21 : tensor<13x70xf16>, <13x70xindex>
    return
  }
}
