// C295: a role is a ranked tensor
// level: L1
// expected: error: expected builtin.tensor
// tags: f16, rejections

func.func private @f(!ktdp.tile_future<(memref<4xf16>), groups = affine_set<(g) : (g == 0)>>)
