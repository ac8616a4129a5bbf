// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: ktir-opt %s --mlir-print-local-scope | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

#rows = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#same = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>

// CHECK-DAG: #[[$SAME:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[$SWAP:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[$WHOLE:.*]] = affine_set<(d0, d1) : (d0 >= 0, -d0 + 56 >= 0, d1 >= 0, -d1 + 63 >= 0)>
// CHECK-DAG: #[[$ROWS:.*]] = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>
// CHECK-DAG: #[[$MASKED:.*]] = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>

// CHECK-LABEL: func.func @ops(
// CHECK-SAME: %[[X:.*]]: index, %[[N:.*]]: index) attributes {grid = [4, 2]}
func.func @ops(%x: index, %n: index) attributes {grid = [4, 2]} {
  // CHECK-NEXT: %[[G:.*]]:2 = ktdp.get_compute_tile_id : index, index
  %i, %j = ktdp.get_compute_tile_id : index, index
  // CHECK-NEXT: %[[V:.*]] = ktdp.construct_memory_view %[[X]], sizes: [57, 64], strides: [64, 1] {coordinate_set = #[[$WHOLE]], memory_space = #ktdp.memory_space<global>} : memref<57x64xf16>
  // GENERIC: "ktdp.construct_memory_view"({{.*}}) {coordinate_set = #set, memory_space = #ktdp.memory_space<global>, operandSegmentSizes = array<i32: 1, 0, 0>, static_sizes = array<i64: 57, 64>, static_strides = array<i64: 64, 1>} : (index) -> memref<57x64xf16>
  %v = ktdp.construct_memory_view %x, sizes: [57, 64], strides: [64, 1] {memory_space = #ktdp.memory_space<global>, coordinate_set = affine_set<(r, c) : (r >= 0, 56 - r >= 0, 0 <= c, c <= 63)>} : memref<57x64xf16>
  // CHECK-NEXT: ktdp.construct_memory_view %[[X]], sizes: [%[[N]], 64], strides: [%[[N]], 1] {coordinate_set = #[[$MASKED]], masked, memory_space = #ktdp.memory_space<ct_local, ct_id = 3>} : memref<?x64xf16>
  %w = ktdp.construct_memory_view %x, sizes: [%n, 64], strides: [%n, 1] {masked, memory_space = #ktdp.memory_space<ct_local, ct_id = 3>, coordinate_set = affine_set<(r, c)[n] : (r >= 0, n - r - 1 >= 0, c >= 0, 63 - c >= 0)>} : memref<?x64xf16>
  // CHECK-NEXT: %[[A:.*]] = ktdp.construct_access_tile %[[V]][%[[G]]#0 * 2 + 1, 0] {access_tile_order = #[[$SAME]], access_tile_set = #[[$ROWS]]} : memref<57x64xf16> -> !ktdp.access_tile<2x64xindex>
  // GENERIC: "ktdp.construct_access_tile"({{.*}}) {access_tile_order = #map{{[0-9]*}}, access_tile_set = #set{{[0-9]*}}, base_map = #map{{[0-9]*}}, operandSegmentSizes = array<i32: 1, 1, 0>} : (memref<57x64xf16>, index) -> !ktdp.access_tile<2x64xindex>
  %a = ktdp.construct_access_tile %v[%i * 2 + 1, 0] {access_tile_order = #same, access_tile_set = #rows} : memref<57x64xf16> -> !ktdp.access_tile<2x64xindex>
  // CHECK-NEXT: %[[L:.*]] = ktdp.load %[[A]] : <2x64xindex> -> tensor<2x64xf16>
  // GENERIC: "ktdp.load"(%{{.*}}) : (!ktdp.access_tile<2x64xindex>) -> tensor<2x64xf16>
  %l = ktdp.load %a : !ktdp.access_tile<2x64xindex> -> tensor<2x64xf16>
  // CHECK-NEXT: ktdp.store %[[L]], %[[A]] {note = 1 : i64} : tensor<2x64xf16>, <2x64xindex>
  ktdp.store %l, %a {note = 1} : tensor<2x64xf16>, <2x64xindex>
  // CHECK-NEXT: ktdp.construct_access_tile %{{.*}}[%[[G]]#1, 0] {access_tile_order = #[[$SWAP]], access_tile_set = #[[$ROWS]]} : memref<?x64xf16> -> !ktdp.access_tile<64x2xindex>
  %t = ktdp.construct_access_tile %w[%j, 0] {access_tile_order = #swap, access_tile_set = #rows} : memref<?x64xf16> -> !ktdp.access_tile<64x2xindex>
  return
}

// CHECK-LABEL: func.func @scalar
func.func @scalar(%x: index) -> tensor<f32> {
  // CHECK: ktdp.construct_memory_view %arg0, sizes: [], strides: [] {coordinate_set = #{{.*}}, memory_space = #ktdp.memory_space<global>} : memref<f32>
  %v = ktdp.construct_memory_view %x, sizes: [], strides: [] {coordinate_set = affine_set<() : ()>, memory_space = #ktdp.memory_space<global>} : memref<f32>
  // CHECK: ktdp.construct_access_tile %{{.*}}[] {{{.*}}} : memref<f32> -> !ktdp.access_tile<index>
  %a = ktdp.construct_access_tile %v[] {access_tile_order = affine_map<() -> ()>, access_tile_set = affine_set<() : ()>} : memref<f32> -> !ktdp.access_tile<index>
  // CHECK: ktdp.load %{{.*}} : <index> -> tensor<f32>
  %l = ktdp.load %a : <index> -> tensor<f32>
  return %l : tensor<f32>
}
