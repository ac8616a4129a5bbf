// Loads in a loop over two blocks inside a batch loop of two trips have a slot each: two pairs that rotate; what is loaded goes out through indices.
// RUN: ktir-opt %s --ktir-allocate-scratchpad --ktir-verify-level | FileCheck %s
// RUN: ktir-opt %s --ktir-allocate-scratchpad --convert-ktir-to-spyre | FileCheck %s --check-prefix=STREAM

// CHECK: ktir.level = "allocated"
// CHECK: scf.for %[[H:[^ ]*]] =
// CHECK: scf.for %[[R:[^ ]*]] =
// CHECK: %[[X:.*]] = ktdp.load {{.*}} -> tensor<1x4x64xf16>
// CHECK: ktir.rotate = #ktir.rotate<nbuf = 2, stride = 1024>
// CHECK: ktdp.store %[[X]]
// CHECK: ktdp.construct_indirect_access_tile
// CHECK: %[[Y:.*]] = ktdp.load {{.*}} -> tensor<1x4x64xf16>
// CHECK: ktdp.store %[[Y]]
// STREAM: spyre.descriptor
// STREAM: element
// STREAM: MNIL
// STREAM: spyre.move
// STREAM: MNIS
// STREAM: spyre.move {{.*}} index = {{.*}}
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#set = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#set1 = affine_set<(d0, d1, d2)[s0] : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + s0 - 1 >= 0, d2 >= 0, -d2 + 63 >= 0, d0 * -64 - d2 + 39 >= 0)>
#set2 = affine_set<(d0, d1, d2, d3)[s0] : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 15 >= 0, d2 >= 0, -d2 + s0 - 1 >= 0, d3 >= 0, -d3 + 63 >= 0, d0 * -64 - d3 + 39 >= 0)>
#set3 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 3 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "tiled"} {
  func.func @forward(%arg0: index {ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [1040], strides = [1]>, ktir.layout = #ktir.layout<size = [1040], device = [17, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "x", ktir.role = "input"}, %arg1: index {ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [13], strides = [1]>, ktir.layout = #ktir.layout<size = [13], device = [1, 64], strides = [64, 1], dtype = i32, arrangement = standard, pad = uninit>, ktir.name = "index", ktir.role = "input"}, %arg2: index {ktir.host = #ktir.host_view<arg = 2, offset = 0, size = [1280], strides = [1]>, ktir.layout = #ktir.layout<size = [1280], device = [20, 64], strides = [64, 1], dtype = f16, arrangement = standard, pad = uninit>, ktir.name = "y", ktir.role = "input_output"}) {
    call @kernel(%arg0, %arg1, %arg2) : (index, index, index) -> ()
    return
  }
  func.func @kernel(%arg0: index, %arg1: index, %arg2: index) attributes {grid = [3], ktir.rows = array<i64: 3>, ktir.work = #ktir.work<splits = [1, 3, 1], tile = [1, 1, 64]>} {
    %0 = ktdp.get_compute_tile_id : index
    %c5 = arith.constant 5 : index
    %1 = arith.muli %0, %c5 : index
    %c13 = arith.constant 13 : index
    %2 = arith.subi %c13, %1 : index
    %c5_0 = arith.constant 5 : index
    %3 = arith.minsi %2, %c5_0 : index
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    scf.for %arg3 = %c0 to %c2 step %c1 {
      %4 = arith.addi %arg1, %1 : index
      %5 = ktdp.construct_memory_view %4, sizes: [%3], strides: [1] {coordinate_set = #set, masked, memory_space = #ktdp.memory_space<global>} : memref<?xi32>
      %c40 = arith.constant 40 : index
      %6 = arith.muli %1, %c40 : index
      %c520 = arith.constant 520 : index
      %7 = arith.muli %arg3, %c520 : index
      %8 = arith.addi %6, %7 : index
      %9 = arith.addi %arg0, %8 : index
      %10 = ktdp.construct_memory_view %9, sizes: [1, %3, 64], strides: [64, 40, 1] {coordinate_set = #set1, masked, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
      %c640 = arith.constant 640 : index
      %11 = arith.muli %arg3, %c640 : index
      %12 = arith.addi %arg2, %11 : index
      %13 = ktdp.construct_memory_view %12, sizes: [1, 16, %3, 64], strides: [64, 40, 0, 1] {coordinate_set = #set2, masked, memory_space = #ktdp.memory_space<global>} : memref<1x16x?x64xf16>
      %c0_1 = arith.constant 0 : index
      %c5_2 = arith.constant 5 : index
      %c4 = arith.constant 4 : index
      scf.for %arg4 = %c0_1 to %c5_2 step %c4 {
        %14 = ktdp.construct_access_tile %10[0, %arg4, 0] {access_tile_order = #map, access_tile_set = #set3} : memref<1x?x64xf16> -> !ktdp.access_tile<1x4x64xindex>
        %15 = ktdp.load %14 : <1x4x64xindex> -> tensor<1x4x64xf16>
        %16 = ktdp.construct_indirect_access_tile intermediate_variables(%arg5, %arg6, %arg7) %13[(%arg5), ind(%5[%arg4 + %arg6]), (%arg4 + %arg6), (%arg7)] {variables_space_order = #map, variables_space_set = #set3} : memref<1x16x?x64xf16>, memref<?xi32> -> !ktdp.access_tile<1x4x64xindex>
        ktdp.store %15, %16 : tensor<1x4x64xf16>, <1x4x64xindex>
      }
    }
    return
  }
}

