// C416: a region has one yield, at its end
// level: L1
// expected: error: last operation
// tags: f16, grid, i32, inter-tile, reduce, rejections, roles

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
func.func @f(%v: tensor<8xf16>, %n: tensor<8xi32>) attributes {grid = [4]} {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<8xf16>, tensor<8xi32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v, %n : tensor<8xf16>, tensor<8xi32>
  }
  %low = arith.constant dense<0xFC00> : tensor<8xf16>
  %none = arith.constant dense<-1> : tensor<8xi32>
  %m:2 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%low, %none : tensor<8xf16>, tensor<8xi32>)
      : <(tensor<8xf16>, tensor<8xi32>), groups = #one> -> tensor<8xf16>, tensor<8xi32> {
  ^bb0(%a: tensor<8xf16>, %i: tensor<8xi32>, %b: tensor<8xf16>, %j: tensor<8xi32>):
    ktdp.yield_reduced %b, %j : tensor<8xf16>, tensor<8xi32>
    ktdp.yield_reduced %a, %i : tensor<8xf16>, tensor<8xi32>
  }
  return
}
