// RUN: ktir-opt %s --split-input-file --verify-diagnostics

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{'ktdp.inter_tile_produce' op yield_partial yields 1 values but the future carries 2 partial type(s)}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>, tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%y: tensor<8xf16>) {
  // expected-error@+1 {{yield_partial value #0 has type 'tensor<8xf16>' but the future carries 'tensor<4x8xf16>'}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %y : tensor<8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{expects block arguments of types (index), but got (i32)}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: i32):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#none = affine_set<(i) : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{`producer_tiles_per_group` must have exactly one symbol (the group index g)}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #none -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#two = affine_set<(i, j)[g] : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{`producer_tiles_per_group` must have exactly one dimension (the tile id i)}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #two -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#overlap = affine_set<(i)[g] : (i - 4*g + g floordiv 2 >= 0, -i + 4*g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 2 >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{producer_tiles_per_group for groups 1 and 2 are not disjoint}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #overlap -> <(tensor<4x8xf16>), groups = #groups> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  return
}

// -----

func.func @f(%x: tensor<4x8xf16>) {
  // expected-error@+1 {{'ktdp.yield_partial' op expects parent op 'ktdp.inter_tile_produce'}}
  ktdp.yield_partial %x : tensor<4x8xf16>
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{failed to verify that result types must match future partial types}}
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : <(tensor<4x8xf16>), groups = #one> -> tensor<8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>, %i: tensor<2xi32>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>, tensor<2xi32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x, %i : tensor<4x8xf16>, tensor<2xi32>
  }
  // expected-error@+1 {{failed to verify that result types must match future partial types}}
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all : <(tensor<4x8xf16>, tensor<2xi32>), groups = #one> -> tensor<4x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#none = affine_set<(i) : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`consumer_tiles_per_group` must have exactly one symbol (the group index g)}}
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #none : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#two = affine_set<(i, j)[g] : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`consumer_tiles_per_group` must have exactly one dimension (the tile id i)}}
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #two : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#dep = affine_set<(p)[a, b, c] : (p - a == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`producer_dependency_per_consumer` must have one symbol (c) or two symbols (c, g)}}
  %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all, producer_dependency_per_consumer = #dep : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#none = affine_set<(i) : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`consumer_tiles_per_group` must have exactly one symbol (the group index g)}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #none, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#two = affine_set<(i, j)[g] : (i >= 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`consumer_tiles_per_group` must have exactly one dimension (the tile id i)}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #two, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#dep = affine_set<(p)[a, b, c] : (p - a == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`producer_dependency_per_consumer` must have one symbol (c) or two symbols (c, g)}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, producer_dependency_per_consumer = #dep, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>, %i: tensor<8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{failed to verify that identity types must match result types}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%i : tensor<8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{failed to verify that result types must match future partial types}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{yield_reduced yields 2 values but the future carries 1 partial type(s)}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l, %r : tensor<4x8xf16>, tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects block arguments of types (tensor<4x8xf16>, tensor<4x8xf16>), but got (tensor<4x8xf16>)}}
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x8xf16> {
  ^bb0(%l: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects extent 3 of 'tensor<4x3xf16>' in dim 1 to be a part of that of 'tensor<4x8xf16>'}}
  %r = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [1], identity(%x : tensor<4x8xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x3xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>, %i: tensor<4x2xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{failed to verify that identity types must match future partial types}}
  %r = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [1], identity(%i : tensor<4x2xf16>) : <(tensor<4x8xf16>), groups = #one> -> tensor<4x2xf16> {
  ^bb0(%l: tensor<4x8xf16>, %r: tensor<4x8xf16>):
    ktdp.yield_reduced %l : tensor<4x8xf16>
  }
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`gather_dimensions` must be non-empty, ascending and distinct, but got []}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`gather_dimensions` must be non-empty, ascending and distinct, but got [1, 0]}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [1, 0] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`gather_dimensions` must be non-empty, ascending and distinct}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0, 0] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{`gather_dimensions` [2] must be dims of 'tensor<4x8xf16>'}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [2] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects extents that grow by 4, the number of producers, but got 'tensor<8x8xf16>' from 'tensor<4x8xf16>'}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0] : <(tensor<4x8xf16>), groups = #one> -> tensor<8x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects extent 8 of 'tensor<4x8xf16>' to stay in dim 1, but got 'tensor<16x4xf16>'}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x4xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects a result of the rank and element type of 'tensor<4x8xf16>', but got 'tensor<16x8xf32>'}}
  %r = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0] : <(tensor<4x8xf16>), groups = #one> -> tensor<16x8xf32>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects extent 6 of 'tensor<6x2xf16>' in dim 0 to be a multiple of that of 'tensor<4x8xf16>'}}
  %r = ktdp.inter_tile_all_to_all(%f) consumer_tiles_per_group = #all, split_dimensions = [1], concat_dimensions = [0] : <(tensor<4x8xf16>), groups = #one> -> tensor<6x2xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{expects one producer per group, but got 4}}
  %r = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [0] : <(tensor<4x8xf16>), groups = #one> -> tensor<1x8xf16>
  return
}

// -----

#first = affine_set<(i)[g] : (i - 4*g == 0)>
#all = affine_set<(i)[g] : (i - 4*g >= 0, -i + 4*g + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%x: tensor<4x8xf16>) {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #first -> <(tensor<4x8xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<4x8xf16>
  }
  // expected-error@+1 {{takes no `producer_dependency_per_consumer`: a group has one producer}}
  %r = ktdp.inter_tile_scatter(%f) consumer_tiles_per_group = #all, scatter_dimensions = [0] {producer_dependency_per_consumer = #all} : <(tensor<4x8xf16>), groups = #one> -> tensor<1x8xf16>
  return
}

// -----

// expected-error@+2 {{invalid kind of type specified: expected builtin.tensor, but found 'f16'}}
// expected-error@+1 {{failed to parse KTDP_TileFutureType parameter 'partialTypes'}}
func.func private @f(!ktdp.tile_future<(f16), groups = affine_set<(g) : (g == 0)>>)

// -----

// expected-error@+1 {{tile_future must carry at least one partial type}}
func.func private @f(!ktdp.tile_future<(), groups = affine_set<(g) : (g == 0)>>)

// -----

// expected-error@+1 {{tile_future `groups` must have exactly one dimension (g)}}
func.func private @f(!ktdp.tile_future<(tensor<4xf16>), groups = affine_set<(g, h) : (g == 0)>>)

// -----

#none = affine_set<() : (0 == 0)>
// expected-error@+1 {{tile_future `groups` must have exactly one dimension (g)}}
func.func private @f(!ktdp.tile_future<(tensor<4xf16>), groups = #none>)

// -----

// expected-error@+1 {{tile_future `groups` must have no symbols}}
func.func private @f(!ktdp.tile_future<(tensor<4xf16>), groups = affine_set<(g)[s] : (g - s == 0)>>)

// -----

// expected-error@+1 {{missing parameter 'groups'}}
func.func private @f(!ktdp.tile_future<(tensor<4xf16>)>)
