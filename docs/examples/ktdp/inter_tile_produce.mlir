// Tile 3 would belong to groups 0 and 1.
#tiles = affine_set<(i)[g] : (i - 3 * g >= 0, -i + 3 * g + 3 >= 0)>
#groups = affine_set<(g) : (g >= 0, -g + 1 >= 0)>
func.func @f(%x: tensor<2x64xf16>) attributes {grid = [8]} {
  // expected-error@+1 {{producer_tiles_per_group for groups 0 and 1 are not disjoint}}
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #tiles -> <(tensor<2x64xf16>), groups = #groups> {
  ^bb0(%gid: index):
    ktdp.yield_partial %x : tensor<2x64xf16>
  }
  return
}
