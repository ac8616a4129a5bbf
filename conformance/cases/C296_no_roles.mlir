// C296: a future has a role
// level: L1
// expected: error: at least one
// tags: rejections

func.func private @f(!ktdp.tile_future<(), groups = affine_set<(g) : (g == 0)>>)
