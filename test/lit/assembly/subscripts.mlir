// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#sym = affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @subscripts
func.func @subscripts(%v: memref<64x64xf16>, %i: index, %j: index) {
  // CHECK: %[[G:.*]]:2 = ktdp.get_compute_tile_id
  %g:2 = ktdp.get_compute_tile_id : index, index
  // CHECK-NEXT: construct_access_tile %arg0[%arg1, %arg1]
  %0 = ktdp.construct_access_tile %v[%i, %i] {access_tile_order = #id, access_tile_set = #box} : memref<64x64xf16> -> !ktdp.access_tile<2x2xindex>
  // CHECK-NEXT: construct_access_tile %arg0[%arg1 * 3, %arg2 + 4]
  %1 = ktdp.construct_access_tile %v[%i + %i * 2, 4 + %j] {access_tile_order = #id, access_tile_set = #box} : memref<64x64xf16> -> !ktdp.access_tile<2x2xindex>
  // CHECK-NEXT: construct_access_tile %arg0[%[[G]]#0, %[[G]]#1]
  %2 = ktdp.construct_access_tile %v[%g#0, %g#1] {access_tile_order = #id, access_tile_set = #box} : memref<64x64xf16> -> !ktdp.access_tile<2x2xindex>
  // CHECK-NEXT: construct_access_tile %arg0[%arg1 floordiv 2 + %arg2 mod 4, -%arg1 + 63]
  %3 = ktdp.construct_access_tile %v[(%i floordiv 2) + %j mod 4, -%i + 63] {access_tile_order = #id, access_tile_set = #box} : memref<64x64xf16> -> !ktdp.access_tile<2x2xindex>
  // CHECK-NEXT: construct_access_tile %arg0[%arg1 ceildiv 8, (%arg1 + %arg2) * 2]
  %4 = ktdp.construct_access_tile %v[%i ceildiv 8, (%i + %j) * 2] {access_tile_order = #id, access_tile_set = #box} : memref<64x64xf16> -> !ktdp.access_tile<2x2xindex>
  // CHECK-NEXT: construct_access_tile %arg0[0, 62] symbols(%arg1) {
  %5 = ktdp.construct_access_tile %v[0, 62] symbols(%i) {access_tile_order = #id, access_tile_set = #sym} : memref<64x64xf16> -> !ktdp.access_tile<?x2xindex>
  return
}
