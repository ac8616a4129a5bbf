// RUN: ktir-opt %s --ktir-check-legality --split-input-file | FileCheck %s
// Each kind of delivery, with the sets that hardware uses; where a set is unbounded nothing is known to be wrong.

// CHECK: func.func @all_reduce(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @all_reduce(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// CHECK: func.func @reduce_to_one(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#first = affine_set<(i)[g] : (i - 4*g == 0)>
func.func @reduce_to_one(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #first, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// CHECK: func.func @broadcast(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#first = affine_set<(i)[g] : (i - 4*g == 0)>
func.func @broadcast(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// CHECK: func.func @mirror(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p + c - 8*g - 3 == 0)>
func.func @mirror(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles, producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// CHECK: func.func @receive_only(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#half = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 1 >= 0)>
func.func @receive_only(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #half -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #tiles, gather_dimensions = [0] : <(tensor<4x64xf16>), groups = #groups> -> tensor<8x64xf16>
  return
}

// -----

// CHECK: func.func @same_sources(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g >= 0, -p + 4*g + 3 >= 0, (p - c) mod 2 == 0)>
func.func @same_sources(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #tiles, gather_dimensions = [0], producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<8x64xf16>
  return
}

// -----

// CHECK: func.func @scatter(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#first = affine_set<(i)[g] : (i - 4*g == 0)>
func.func @scatter(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = #tiles, scatter_dimensions = [1] : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x16xf16>
  return
}

// -----

// CHECK: func.func @all_to_all(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @all_to_all(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_all_to_all(%f) consumer_tiles_per_group = #tiles, split_dimensions = [1], concat_dimensions = [0] : <(tensor<4x64xf16>), groups = #groups> -> tensor<16x16xf16>
  return
}

// -----

// CHECK: func.func @reduce_scatter(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @reduce_scatter(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #tiles, scatter_dimensions = [1], identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x16xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// CHECK: func.func @unbounded(
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c] : (p - c >= 0)>
func.func @unbounded(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles, producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}
