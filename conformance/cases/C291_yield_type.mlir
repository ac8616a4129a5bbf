// C291: the yielded type is that of the role
// level: L1
// expected: error: carries
// tags: consume, f16, grid, inter-tile, rejections

#tiles = affine_set<(i)[g] : (i - 4 * g >= 0, -i + 4 * g + 3 >= 0)>
#first = affine_set<(i)[g] : (i - 4 * g == 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<2x64xf16>) attributes {grid = [8]} {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<2x32xf16>), groups = #groups> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<2x64xf16>
  }
  %y = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles
      : <(tensor<2x32xf16>), groups = #groups> -> tensor<2x32xf16> 
  return
}
