// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: ktir-opt %s --mlir-print-local-scope | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

#first = affine_set<(i)[g] : (i - 8*g == 0)>
#all = affine_set<(i)[g] : (i - 8*g >= 0, -i + 8*g + 7 >= 0)>
#low = affine_set<(i)[g] : (i - 8*g >= 0, -i + 8*g + 3 >= 0)>
#high = affine_set<(i)[g] : (i - 8*g - 4 >= 0, -i + 8*g + 7 >= 0)>
#four = affine_set<(g) : (g >= 0, -g + 3 >= 0)>
#shift = affine_set<(p)[c] : (p - c + 4 == 0)>
#mirror = affine_set<(p)[c, g] : (p + c - 16*g - 7 == 0)>

// CHECK-DAG: #[[$FIRST:.*]] = affine_set<(d0)[s0] : (d0 - s0 * 8 == 0)>
// CHECK-DAG: #[[$FOUR:.*]] = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
// CHECK-DAG: #[[$ALL:.*]] = affine_set<(d0)[s0] : (d0 - s0 * 8 >= 0, -d0 + s0 * 8 + 7 >= 0)>
// CHECK-DAG: #[[$MIRROR:.*]] = affine_set<(d0)[s0, s1] : (d0 + s0 - s1 * 16 - 7 == 0)>

// CHECK-LABEL: func.func @consume(
// CHECK-SAME: %[[A:.*]]: tensor<4x64xf16>, %[[B:.*]]: tensor<2xi32>)
func.func @consume(%a: tensor<4x64xf16>, %b: tensor<2xi32>) -> (tensor<4x64xf16>, tensor<2xi32>, tensor<4x64xf16>) {
  // CHECK-NEXT: %[[F:.*]] = ktdp.inter_tile_produce producer_tiles_per_group = #[[$FIRST]] -> <(tensor<4x64xf16>, tensor<2xi32>), groups = #[[$FOUR]]> {
  // CHECK-NEXT: ^bb0(%{{.*}}: index):
  // CHECK-NEXT:   ktdp.yield_partial %[[A]], %[[B]] : tensor<4x64xf16>, tensor<2xi32>
  // CHECK-NEXT: }
  // GENERIC: "ktdp.inter_tile_produce"() ({
  // GENERIC: "ktdp.yield_partial"(%{{.*}}, %{{.*}}) : (tensor<4x64xf16>, tensor<2xi32>) -> ()
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x64xf16>, tensor<2xi32>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %a, %b : tensor<4x64xf16>, tensor<2xi32>
  }
  // CHECK-NEXT: %[[R:.*]]:2 = ktdp.inter_tile_consume(%[[F]]) consumer_tiles_per_group = #[[$ALL]] : <(tensor<4x64xf16>, tensor<2xi32>), groups = #[[$FOUR]]> -> tensor<4x64xf16>, tensor<2xi32>
  // GENERIC: "ktdp.inter_tile_consume"(%{{.*}}) {consumer_tiles_per_group = #{{.*}}} : (!ktdp.tile_future<(tensor<4x64xf16>, tensor<2xi32>), groups = {{.*}}>) -> (tensor<4x64xf16>, tensor<2xi32>)
  %r0, %r1 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : !ktdp.tile_future<(tensor<4x64xf16>, tensor<2xi32>), groups = #four> -> tensor<4x64xf16>, tensor<2xi32>
  %h = ktdp.inter_tile_produce producer_tiles_per_group = #low {note} -> <(tensor<4x64xf16>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %a : tensor<4x64xf16>
  }
  // CHECK: ktdp.inter_tile_consume(%{{.*}}) consumer_tiles_per_group = #{{.*}}, producer_dependency_per_consumer = #{{.*}} {note} : <(tensor<4x64xf16>), groups = #[[$FOUR]]> -> tensor<4x64xf16>
  %s = ktdp.inter_tile_consume(%h) consumer_tiles_per_group = #high, producer_dependency_per_consumer = #shift {note} : <(tensor<4x64xf16>), groups = #four> -> tensor<4x64xf16>
  return %r0, %r1, %s : tensor<4x64xf16>, tensor<2xi32>, tensor<4x64xf16>
}

// Two roles, as for the greatest element and where it is.
// CHECK-LABEL: func.func @reduce(
func.func @reduce(%v: tensor<64xf32>, %i: tensor<64xi32>, %iv: tensor<64xf32>, %ii: tensor<64xi32>) -> tensor<64xi32> {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<64xf32>, tensor<64xi32>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v, %i : tensor<64xf32>, tensor<64xi32>
  }
  // CHECK: %[[R:.*]]:2 = ktdp.inter_tile_reduce(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], producer_dependency_per_consumer = #[[$MIRROR]], identity(%arg2, %arg3 : tensor<64xf32>, tensor<64xi32>) : <(tensor<64xf32>, tensor<64xi32>), groups = #[[$FOUR]]> -> tensor<64xf32>, tensor<64xi32> {
  // CHECK-NEXT: ^bb0(%[[V0:.*]]: tensor<64xf32>, %[[I0:.*]]: tensor<64xi32>, %[[V1:.*]]: tensor<64xf32>, %[[I1:.*]]: tensor<64xi32>):
  // CHECK: ktdp.yield_reduced %{{.*}}, %{{.*}} : tensor<64xf32>, tensor<64xi32>
  // CHECK-NEXT: }
  // CHECK-NEXT: return %[[R]]#1
  %m, %at = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, producer_dependency_per_consumer = #mirror,
      identity(%iv, %ii : tensor<64xf32>, tensor<64xi32>) : <(tensor<64xf32>, tensor<64xi32>), groups = #four> -> tensor<64xf32>, tensor<64xi32> {
  ^bb0(%v0: tensor<64xf32>, %i0: tensor<64xi32>, %v1: tensor<64xf32>, %i1: tensor<64xi32>):
    %c = arith.cmpf ogt, %v0, %v1 : tensor<64xf32>
    %w = arith.select %c, %v0, %v1 : tensor<64xi1>, tensor<64xf32>
    %j = arith.select %c, %i0, %i1 : tensor<64xi1>, tensor<64xi32>
    ktdp.yield_reduced %w, %j : tensor<64xf32>, tensor<64xi32>
  }
  return %at : tensor<64xi32>
}

// The deliveries that change shapes.
// CHECK-LABEL: func.func @shares(
func.func @shares(%x: tensor<8x16x64xf16>, %z: tensor<8x16x64xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<8x16x64xf16>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<8x16x64xf16>
  }
  // CHECK: ktdp.inter_tile_reduce_scatter(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], scatter_dimensions = [0, 1], identity(%arg1 : tensor<8x16x64xf16>) : <(tensor<8x16x64xf16>), groups = #[[$FOUR]]> -> tensor<2x8x64xf16> {
  // GENERIC: "ktdp.inter_tile_reduce_scatter"(%{{.*}}, %{{.*}}) ({
  // GENERIC: }) {consumer_tiles_per_group = #{{.*}}, operandSegmentSizes = array<i32: 1, 1>, scatter_dimensions = array<i64: 0, 1>} : ({{.*}}) -> tensor<2x8x64xf16>
  %a = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [0, 1], identity(%z : tensor<8x16x64xf16>) : <(tensor<8x16x64xf16>), groups = #four> -> tensor<2x8x64xf16> {
  ^bb0(%l: tensor<8x16x64xf16>, %r: tensor<8x16x64xf16>):
    %s = arith.addf %l, %r : tensor<8x16x64xf16>
    ktdp.yield_reduced %s : tensor<8x16x64xf16>
  }
  // CHECK: ktdp.inter_tile_gather(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], gather_dimensions = [0, 2] : <(tensor<8x16x64xf16>), groups = #[[$FOUR]]> -> tensor<16x16x256xf16>
  %b = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0, 2] : <(tensor<8x16x64xf16>), groups = #four> -> tensor<16x16x256xf16>
  // CHECK: ktdp.inter_tile_gather(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], gather_dimensions = [1], producer_dependency_per_consumer = #{{.*}} : {{.*}} -> tensor<8x32x64xf16>
  %c = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [1], producer_dependency_per_consumer = #shift : <(tensor<8x16x64xf16>), groups = #four> -> tensor<8x32x64xf16>
  // CHECK: ktdp.inter_tile_all_to_all(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], split_dimensions = [1], concat_dimensions = [0] : {{.*}} -> tensor<64x2x64xf16>
  %d = ktdp.inter_tile_all_to_all(%f) consumer_tiles_per_group = #all, split_dimensions = [1], concat_dimensions = [0] : <(tensor<8x16x64xf16>), groups = #four> -> tensor<64x2x64xf16>
  %g = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<8x16x64xf16>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<8x16x64xf16>
  }
  // CHECK: ktdp.inter_tile_scatter(%{{.*}}) consumer_tiles_per_group = #[[$ALL]], scatter_dimensions = [0] : {{.*}} -> tensor<1x16x64xf16>
  %e = ktdp.inter_tile_scatter(%g) consumer_tiles_per_group = #all, scatter_dimensions = [0] : <(tensor<8x16x64xf16>), groups = #four> -> tensor<1x16x64xf16>
  return
}

// Sets that are not bounded, or not obviously, are not enumerated.
#even = affine_set<(i)[g] : (i mod 2 == 0, (i floordiv 2) mod 16 - g == 0, i >= 0, -i + 31 >= 0)>
#open = affine_set<(i)[g] : (i - g >= 0)>
// CHECK-LABEL: func.func @sets(
func.func @sets(%x: tensor<4xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #even -> <(tensor<4xf16>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  %g = ktdp.inter_tile_produce producer_tiles_per_group = #open -> <(tensor<4xf16>), groups = #four> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4xf16>
  }
  return
}
