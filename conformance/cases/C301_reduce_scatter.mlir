// C301: reduce_scatter
// level: L1
// expected: ok
// tags: f16, grid, inter-tile, reduce-scatter

#tiles = affine_set<(i)[g] : (i - 4 * g >= 0, -i + 4 * g + 3 >= 0)>
#first = affine_set<(i)[g] : (i - 4 * g == 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<2x64xf16>) attributes {grid = [8]} {
  %zero = arith.constant dense<0.0> : tensor<2x64xf16>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<2x64xf16>), groups = #groups> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<2x64xf16>
  }
  %y = ktdp.inter_tile_reduce_scatter(%f) consumer_tiles_per_group = #tiles, scatter_dimensions = [1], identity(%zero : tensor<2x64xf16>)
      : <(tensor<2x64xf16>), groups = #groups> -> tensor<2x16xf16> {
  ^bb0(%a: tensor<2x64xf16>, %b: tensor<2x64xf16>):
    %c = arith.addf %a, %b : tensor<2x64xf16>
    ktdp.yield_reduced %c : tensor<2x64xf16>
  }
  return
}
