// C283: two roles of different types
// level: L1
// expected: ok
// tags: f16, grid, i32, inter-tile, reduce, roles

#tiles = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%v: tensor<8xf16>, %n: tensor<8xi32>) attributes {grid = [4]} {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<8xf16>, tensor<8xi32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v, %n : tensor<8xf16>, tensor<8xi32>
  }
  %low = arith.constant dense<0xFC00> : tensor<8xf16>
  %none = arith.constant dense<-1> : tensor<8xi32>
  %m:2 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #tiles, identity(%low, %none : tensor<8xf16>, tensor<8xi32>)
      : <(tensor<8xf16>, tensor<8xi32>), groups = #one> -> tensor<8xf16>, tensor<8xi32> {
  ^bb0(%a: tensor<8xf16>, %i: tensor<8xi32>, %b: tensor<8xf16>, %j: tensor<8xi32>):
    %c = arith.cmpf oge, %a, %b : tensor<8xf16>
    %s = arith.select %c, %a, %b : tensor<8xi1>, tensor<8xf16>
    %k = arith.select %c, %i, %j : tensor<8xi1>, tensor<8xi32>
    ktdp.yield_reduced %s, %k : tensor<8xf16>, tensor<8xi32>
  }
  return
}
