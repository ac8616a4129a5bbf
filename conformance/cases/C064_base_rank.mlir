// C064: one index per dim of the base
// level: L1
// expected: error: base
// tags: f16, literal-subscripts, rejections

func.func @f(%v: memref<8x8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<8x8xf16> -> !ktdp.access_tile<4xindex>
  return
}
