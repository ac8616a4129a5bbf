// C072: the tile's shape is the order applied to the extents of its set
// level: L1
// expected: error: shape
// tags: f16, literal-subscripts, order, rejections
// mode: strict

func.func @f(%v: memref<8x8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[0, 0]
      {access_tile_order = affine_map<(d0, d1) -> (d1, d0)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>} : memref<8x8xf16> -> !ktdp.access_tile<4x2xindex>
  return
}
