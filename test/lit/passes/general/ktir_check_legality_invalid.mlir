// RUN: ktir-opt %s --ktir-check-legality --split-input-file --verify-diagnostics -o /dev/null

// R2: two deliveries.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  // expected-error@+1 {{'ktdp.inter_tile_produce' op future result must have exactly one use, but has 2}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  %y1 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// R2: none.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  // expected-error@+1 {{future result must have exactly one use, but has 0}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  return
}

// -----

// R3.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c] : (p - c - 1 == 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{'ktdp.inter_tile_consume' op producer_dependency_per_consumer of consumer tile 3 in group 0 names tile 4, which is not in producer_tiles_per_group}}
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles, producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// R4.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g == 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{does not cover producer tile 1 (no consumer has it as a dependency)}}
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles, producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// R5: 0 takes from {0, 1}, 1 from {1, 2}, ...
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g >= 0, -p + 4*g + 3 >= 0, p - c >= 0, -p + c + 1 >= 0)>
#most = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 2 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{gives consumer tiles 0 and 1 sets that overlap in tile 1}}
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #most, gather_dimensions = [0], producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<8x64xf16>
  return
}

// -----

// R6: the first takes from one, the second from three.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#pair = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g >= 0, -p + 4*g + 3 >= 0, p - c >= 0, -p + 3*c - 8*g >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{producers, but tile}}
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #pair, gather_dimensions = [0], producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<16x64xf16>
  return
}

// -----

// R7: group 0 has one producer, group 1 has two.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#some = affine_set<(i)[g] : (i - 4*g >= 0, -i + 5*g >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #some -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{group 0 has 1 producers, but group 1 has 2}}
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #tiles, gather_dimensions = [0] : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// R8: many producers, no routing.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{group 0 has 4 producers, so producer_dependency_per_consumer is required to name each consumer tile's single source}}
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// R8: two sources.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g >= 0, -p + 4*g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{consumer tile 0 of group 0 depends on 2 producers; inter_tile_consume delivers one contribution per consumer tile, so exactly one is required}}
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles, producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16>
  return
}

// -----

// R9: eight shares for four tiles.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#first = affine_set<(i)[g] : (i - 4*g == 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{scatter_dimensions make 8 shares, which 4 consumer tiles of group 0 cannot hold evenly}}
  %y0 = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = #tiles, scatter_dimensions = [1] : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x8xf16>
  return
}

// -----

// R10: the combiner loads.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{'ktdp.inter_tile_reduce' op combiner must be pure, but has 'memref.load'}}
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %v = memref.load %m[%i] : memref<4xf16>
    ktdp.yield_reduced %a : tensor<4x64xf16>
  }
  return
}

// -----

// R12: three contributions where there are two.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#dep = affine_set<(p)[c, g] : (p - 4*g >= 0, -p + 4*g + 3 >= 0, (p - c) mod 2 == 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{gather_dimensions assemble 3 contributions, but group 0 delivers 2 to a consumer}}
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #tiles, gather_dimensions = [0], producer_dependency_per_consumer = #dep : <(tensor<4x64xf16>), groups = #groups> -> tensor<12x64xf16>
  return
}

// -----

// R13.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#more = affine_set<(i)[g] : (i - 4*g - 2 >= 0, -i + 4*g + 5 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{consumer_tiles_per_group for group 0 is not a subset of producer_tiles_per_group}}
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #more, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// R14.
#tiles = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
#half = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 1 >= 0)>
func.func @f(%x: tensor<4x64xf16>, %z: tensor<4x64xf16>, %m: memref<4xf16>, %i: index) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<4x64xf16>), groups = #groups> {
  ^bb0(%g: index):
    ktdp.yield_partial %x : tensor<4x64xf16>
  }
  // expected-error@+1 {{has 2 of 4 producer tiles: reduce-to-subset is unsupported; only all-reduce and reduce-to-one are supported}}
  %y0 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #half, identity(%z : tensor<4x64xf16>) : <(tensor<4x64xf16>), groups = #groups> -> tensor<4x64xf16> {
  ^bb0(%a: tensor<4x64xf16>, %b: tensor<4x64xf16>):
    %c = arith.addf %a, %b : tensor<4x64xf16>
    ktdp.yield_reduced %c : tensor<4x64xf16>
  }
  return
}

// -----

// Ops of other dialects.
func.func @f(%x: index) {
  // expected-error@+1 {{'affine.apply' op is of dialect 'affine', which is no part of KTIR}}
  %0 = affine.apply affine_map<(d0) -> (d0 + 1)>(%x)
  // expected-error@+1 {{'cf.br' op is of dialect 'cf'}}
  cf.br ^bb1
^bb1:
  return
}
