// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip | FileCheck %s

// Names of ours in comments, strings, symbols and attribute names are text like any other: ktdp.load %x : <4xindex> -> f16.
// CHECK-LABEL: func.func @comments
func.func @comments(%a: index) attributes {my.note = "ktdp.load %x : !ktdp.access_tile<4xindex>", ktdp.load, ktdp.store = 1 : i64} {
  // CHECK-NEXT: ktdp.get_compute_tile_id : index
  %t = ktdp.get_compute_tile_id // behind the name
      : // in the middle
      index // at the end
  // CHECK-NEXT: ktdp.construct_memory_view %arg0, sizes: [4], strides: [1] {{{.*}}} : memref<4xf16>
  %v = ktdp.construct_memory_view %a, // one
      sizes: [4], // two
      strides: [1] {
        coordinate_set = affine_set<(d0) : (d0 >= 0, // three
                                            -d0 + 3 >= 0)>,
        memory_space = #ktdp.memory_space<global> // four
      } : memref<4xf16>
  // CHECK-NEXT: return
  return
}

// CHECK-LABEL: func.func @ktdp.load()
func.func @"ktdp.load"() {
  // CHECK-NEXT: call @ktdp.store() : () -> ()
  func.call @ktdp.store() : () -> ()
  return
}

// CHECK-LABEL: func.func @ktdp.store
func.func @ktdp.store() {
  return
}
