// Two roles, values and their positions, of 8 groups.
#groups = affine_set<(g) : (g >= 0, -g + 7 >= 0)>
func.func private @argmax(!ktdp.tile_future<(tensor<1x64xf16>, tensor<1x64xi32>), groups = #groups>)

// -----

#pairs = affine_set<(g, h) : (g >= 0, -g + h >= 0)>
// expected-error@+1 {{tile_future `groups` must have exactly one dimension (g)}}
func.func private @f(!ktdp.tile_future<(tensor<1x64xf16>), groups = #pairs>)
