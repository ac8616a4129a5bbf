// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-rescale-addresses | FileCheck %s
// RUN: ktir-opt %s --split-input-file --ktir-rescale-addresses=unit=element | FileCheck %s --check-prefix=SAME

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>

// A stick has 64 elements of f16 and 32 of i32; what an argument is, and the scratchpad, count as they did.
// CHECK-LABEL: func.func @sticks(
// SAME-LABEL: func.func @sticks(
func.func @sticks(%x: index) {
  %a = arith.constant 3 : index
  // CHECK: %[[F16:.*]] = arith.constant 192 : index
  // CHECK: ktdp.construct_memory_view %[[F16]], sizes: [4]
  // SAME: %[[A:.*]] = arith.constant 3 : index
  // SAME: ktdp.construct_memory_view %[[A]], sizes: [4]
  %u = ktdp.construct_memory_view %a, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  // CHECK: %[[I32:.*]] = arith.constant 96 : index
  // CHECK: ktdp.construct_memory_view %[[I32]], sizes: [4]
  %v = ktdp.construct_memory_view %a, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  // CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [4]{{.*}}ct_local
  %w = ktdp.construct_memory_view %a, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16>
  // CHECK: ktdp.construct_memory_view %arg0, sizes: [4]
  %y = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  // CHECK: %[[SUM:.*]] = arith.addi
  %s = arith.addi %a, %a : index
  // CHECK: %[[SCALED:.*]] = arith.muli %[[SUM]], %{{.*}} : index
  // CHECK: ktdp.construct_memory_view %[[SCALED]], sizes: [4]
  %z = ktdp.construct_memory_view %s, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  return
}
