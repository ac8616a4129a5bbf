// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

// The oldest texts write futures without parentheses and let a reduction drop the unit dim of its role: a reshape is made of that.

#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>

// CHECK-LABEL: func.func @row(
// CHECK: %[[ROW:.+]] = ktdp.inter_tile_reduce({{.*}} -> tensor<1x4x8xf16> {
// CHECK: %[[DROPPED:.+]] = tensor.collapse_shape %[[ROW]] {{\[\[}}0, 1], [2]] : tensor<1x4x8xf16> into tensor<4x8xf16>
// CHECK: return %[[DROPPED]]
func.func @row(%f: !ktdp.tile_future<tensor<1x4x8xf16>, groups = affine_set<(g) : (g == 0)>>, %z: tensor<1x4x8xf16>) -> tensor<4x8xf16> {
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<1x4x8xf16>)
      : !ktdp.tile_future<tensor<1x4x8xf16>, groups = affine_set<(g) : (g == 0)>> -> tensor<4x8xf16> {
  ^bb0(%a: tensor<1x4x8xf16>, %b: tensor<1x4x8xf16>):
    %s = arith.addf %a, %b : tensor<1x4x8xf16>
    ktdp.yield_reduced %s : tensor<1x4x8xf16>
  }
  return %r : tensor<4x8xf16>
}

// CHECK-LABEL: func.func @scalar(
// CHECK: %[[ONE:.+]] = ktdp.inter_tile_reduce({{.*}} -> tensor<1xf16> {
// CHECK: tensor.collapse_shape %[[ONE]] [] : tensor<1xf16> into tensor<f16>
func.func @scalar(%f: !ktdp.tile_future<tensor<1xf16>, groups = affine_set<(g) : (g == 0)>>, %z: tensor<1xf16>) -> tensor<f16> {
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<1xf16>)
      : !ktdp.tile_future<tensor<1xf16>, groups = affine_set<(g) : (g == 0)>> -> tensor<f16> {
  ^bb0(%a: tensor<1xf16>, %b: tensor<1xf16>):
    %s = arith.addf %a, %b : tensor<1xf16>
    ktdp.yield_reduced %s : tensor<1xf16>
  }
  return %r : tensor<f16>
}
