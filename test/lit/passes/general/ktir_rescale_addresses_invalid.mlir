// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-rescale-addresses=unit=byte -o /dev/null
// RUN: not ktir-opt %s --ktir-rescale-addresses=unit=sticks 2>&1 | FileCheck %s

// CHECK: pass 'ktir-rescale-addresses': option 'unit' expects one of stick, byte, element, but got 'sticks'; did you mean 'stick'?

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>

func.func @inside() {
  %a = arith.constant 66 : index
  // expected-error @below {{'ktdp.construct_memory_view' op begins 2 bytes inside of an element of type f32}}
  %u = ktdp.construct_memory_view %a, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  return
}
