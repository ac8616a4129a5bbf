// C293: the producer region has the group as argument
// level: L1
// expected: error: block argument
// tags: consume, f16, grid, i32, inter-tile, rejections

#tiles = affine_set<(i)[g] : (i - 4 * g >= 0, -i + 4 * g + 3 >= 0)>
#first = affine_set<(i)[g] : (i - 4 * g == 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<2x64xf16>) attributes {grid = [8]} {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<2x64xf16>), groups = #groups> {
  ^bb0(%gid: i32):
    ktdp.yield_partial %x : tensor<2x64xf16>
  }
  %y = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #tiles
      : <(tensor<2x64xf16>), groups = #groups> -> tensor<2x64xf16> 
  return
}
