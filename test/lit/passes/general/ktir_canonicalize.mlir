// RUN: ktir-opt %s --ktir-canonicalize | FileCheck %s
// RUN: ktir-opt %s --ktir-canonicalize > %t
// RUN: ktir-opt %t --ktir-canonicalize | diff - %t
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-canonicalize,canonicalize,ktir-canonicalize)' -o /dev/null
// RUN: ktir-opt %s --ktir-canonicalize --mlir-pass-statistics -o /dev/null 2>&1 | FileCheck %s --check-prefix=STATISTICS

// STATISTICS: constant-index
// STATISTICS: ops-merged

#id = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#view = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#space = #ktdp.memory_space<global>

// CHECK-DAG: #[[$PART:.*]] = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 31 >= 0)>
// CHECK-DAG: #[[$BOX:.*]] = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 63 >= 0)>

// CHECK-LABEL: func.func @constants(
// CHECK-SAME: %[[V:.*]]: memref<64x64xf16>, %[[I:.*]]: index)
// CHECK-NOT: arith.constant
// CHECK: ktdp.construct_access_tile %[[V]][%[[I]] * 3 + 4, 0] {
func.func @constants(%v: memref<64x64xf16>, %i: index) -> tensor<8x64xf16> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %t = ktdp.construct_access_tile %v[%i + %c2 * 2 + %i * 2, %c0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  return %x : tensor<8x64xf16>
}

// Strides become static, sizes do not: they make the view a masked one.
// CHECK-LABEL: func.func @strides(
// CHECK: ktdp.construct_memory_view %{{.*}}, sizes: [%c64, 64], strides: [128, %{{.*}}] {
func.func @strides(%a: index, %s: index) -> memref<?x64xf16> {
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %v = ktdp.construct_memory_view %a, sizes: [%c64, 64], strides: [%c128, %s] {coordinate_set = #view, memory_space = #space} : memref<?x64xf16>
  return %v : memref<?x64xf16>
}

// Duplicates, also in a loop; the dead go, a store stays.
// CHECK-LABEL: func.func @duplicates(
// CHECK-NEXT: %[[V:.*]] = ktdp.construct_memory_view
// CHECK-NEXT: %[[T:.*]] = ktdp.construct_access_tile %[[V]][0, 0]
// CHECK-NEXT: %[[X:.*]] = ktdp.load %[[T]]
// CHECK-NEXT: scf.for
// CHECK-NEXT: ktdp.store %[[X]], %[[T]]
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @duplicates(%a: index) {
  %c0 = arith.constant 0 : index
  %v = ktdp.construct_memory_view %a, sizes: [64, 64], strides: [64, 1] {coordinate_set = #view, memory_space = #space} : memref<64x64xf16>
  %w = ktdp.construct_memory_view %a, sizes: [64, 64], strides: [64, 1] {coordinate_set = #view, memory_space = #space} : memref<64x64xf16>
  %t = ktdp.construct_access_tile %v[0, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  %dead = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  scf.for %i = %a to %a step %a {
    %u = ktdp.construct_access_tile %w[%c0, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
    ktdp.store %x, %u : tensor<8x64xf16>, <8x64xindex>
  }
  return
}

// What an inner block defines does not serve the outer one.
// CHECK-LABEL: func.func @scopes(
// CHECK: scf.for
// CHECK-NEXT: ktdp.get_compute_tile_id
// CHECK: }
// CHECK-NEXT: ktdp.get_compute_tile_id
func.func @scopes(%a: index) -> index {
  scf.for %i = %a to %a step %a {
    %0 = ktdp.get_compute_tile_id : index
    func.call @use(%0) : (index) -> ()
  }
  %1 = ktdp.get_compute_tile_id : index
  return %1 : index
}
func.func private @use(%a: index)

// CHECK-LABEL: func.func @corner(
// CHECK: ktdp.construct_access_tile %{{.*}}[%{{.*}} + 2, 0] {access_tile_order = #{{.*}}, access_tile_set = #[[$BOX]]}
func.func @corner(%v: memref<64x64xf16>, %i: index) -> tensor<8x64xf16> {
  %t = ktdp.construct_access_tile %v[%i, 0] {access_tile_set = affine_set<(d0, d1) : (d0 - 2 >= 0, -d0 + 9 >= 0, d1 >= 0, -d1 + 63 >= 0)>, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  return %x : tensor<8x64xf16>
}

// CHECK-LABEL: func.func @tensor_base(
// CHECK-SAME: %[[X:.*]]: tensor<8x64xf16>
// CHECK-NEXT: return %[[X]]
func.func @tensor_base(%v: tensor<8x64xf16>) -> tensor<8x64xf16> {
  %t = ktdp.construct_access_tile %v[0, 0] {access_tile_set = #box, access_tile_order = #id} : tensor<8x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  return %x : tensor<8x64xf16>
}

// CHECK-LABEL: func.func @slices(
// CHECK-SAME: %[[V:.*]]: memref<64x64xf16>, %[[I:.*]]: index, %[[J:.*]]: index)
// CHECK: %[[T:.*]] = ktdp.construct_access_tile %[[V]][%[[I]] + %[[J]], 32] {access_tile_order = #{{.*}}, access_tile_set = #[[$PART]]} : memref<64x64xf16> -> !ktdp.access_tile<4x32xindex>
// CHECK-NEXT: %[[X:.*]] = ktdp.load %[[T]] : <4x32xindex> -> tensor<4x32xf16>
// CHECK: ktdp.store
// CHECK-NEXT: return %[[X]]
func.func @slices(%v: memref<64x64xf16>, %i: index, %j: index) -> tensor<4x32xf16> {
  %t = ktdp.construct_access_tile %v[%i, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  // The load stays in front of the store.
  %u = ktdp.construct_access_tile %v[%i, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %c = arith.constant dense<0.0> : tensor<8x64xf16>
  ktdp.store %c, %u : tensor<8x64xf16>, <8x64xindex>
  %y = tensor.extract_slice %x[%j, 32] [4, 32] [1, 1] : tensor<8x64xf16> to tensor<4x32xf16>
  return %y : tensor<4x32xf16>
}

// A tile in another order: dim 0 of the slice is dim 1 of the view.
// CHECK-LABEL: func.func @turned(
// CHECK-NEXT: ktdp.construct_access_tile %{{.*}}[5, 7] {access_tile_order = #{{.*}}, access_tile_set = #[[$PART]]} : memref<64x64xf16> -> !ktdp.access_tile<32x4xindex>
func.func @turned(%v: memref<64x64xf16>) -> tensor<32x4xf16> {
  %t = ktdp.construct_access_tile %v[2, 0] {access_tile_set = #box, access_tile_order = #swap} : memref<64x64xf16> -> !ktdp.access_tile<64x8xindex>
  %x = ktdp.load %t : <64x8xindex> -> tensor<64x8xf16>
  %y = tensor.extract_slice %x[7, 3] [32, 4] [1, 1] : tensor<64x8xf16> to tensor<32x4xf16>
  return %y : tensor<32x4xf16>
}

// CHECK-LABEL: func.func @dropped_dim(
// CHECK: ktdp.load %{{.*}} : <1x32xindex> -> tensor<1x32xf16>
// CHECK-NEXT: tensor.extract_slice %{{.*}}[0, 0] [1, 32] [1, 1] : tensor<1x32xf16> to tensor<32xf16>
func.func @dropped_dim(%v: memref<64x64xf16>) -> tensor<32xf16> {
  %t = ktdp.construct_access_tile %v[0, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  %y = tensor.extract_slice %x[3, 0] [1, 32] [1, 1] : tensor<8x64xf16> to tensor<32xf16>
  return %y : tensor<32xf16>
}

// Not possible: every second element; an offset that is only known later; two slices.
// CHECK-LABEL: func.func @wide(
// CHECK-COUNT-3: ktdp.load %{{.*}} : <8x64xindex> -> tensor<8x64xf16>
func.func @wide(%v: memref<64x64xf16>) -> (tensor<8x32xf16>, tensor<1x64xf16>, tensor<1x64xf16>, tensor<1x64xf16>) {
  %t = ktdp.construct_access_tile %v[0, 0] {access_tile_set = #box, access_tile_order = #id} : memref<64x64xf16> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  %a = tensor.extract_slice %x[0, 0] [8, 32] [1, 2] : tensor<8x64xf16> to tensor<8x32xf16>
  %y = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  %i = ktdp.get_compute_tile_id : index
  %b = tensor.extract_slice %y[%i, 0] [1, 64] [1, 1] : tensor<8x64xf16> to tensor<1x64xf16>
  %z = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  %c = tensor.extract_slice %z[0, 0] [1, 64] [1, 1] : tensor<8x64xf16> to tensor<1x64xf16>
  %d = tensor.extract_slice %z[1, 0] [1, 64] [1, 1] : tensor<8x64xf16> to tensor<1x64xf16>
  return %a, %b, %c, %d : tensor<8x32xf16>, tensor<1x64xf16>, tensor<1x64xf16>, tensor<1x64xf16>
}

// CHECK-LABEL: func.func @indirect(
// CHECK-SAME: %[[V:.*]]: memref<64x64xf16>, %[[R:.*]]: memref<16xi32>, %[[I:.*]]: index)
// CHECK-NEXT: ktdp.construct_indirect_access_tile intermediate_variables(%[[A:.*]], %[[B:.*]]) %[[V]][ind(%[[R]][%[[I]] + %[[A]] + 3]), (%[[B]])]
func.func @indirect(%v: memref<64x64xf16>, %r: memref<16xi32>, %i: index) -> tensor<8x64xf16> {
  %c3 = arith.constant 3 : index
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%a, %b) %v[ind(%r[%a + %c3 + %i]), (%b)] {variables_space_order = #id, variables_space_set = #box} : memref<64x64xf16>, memref<16xi32> -> !ktdp.access_tile<8x64xindex>
  %x = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  return %x : tensor<8x64xf16>
}
