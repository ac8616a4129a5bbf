// C307: dims are those of the contribution
// level: L1
// expected: error: must be dims of
// tags: f16, gather, grid, inter-tile, rejections

#tiles = affine_set<(i)[g] : (i - 4 * g >= 0, -i + 4 * g + 3 >= 0)>
#first = affine_set<(i)[g] : (i - 4 * g == 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<2x64xf16>) attributes {grid = [8]} {
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<2x64xf16>), groups = #groups> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<2x64xf16>
  }
  %y = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #tiles, gather_dimensions = [2]
      : <(tensor<2x64xf16>), groups = #groups> -> tensor<8x64xf16> 
  return
}
