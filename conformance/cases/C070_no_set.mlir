// C070: a tile has a set
// level: L1
// expected: error: requires attribute 'access_tile_set'
// tags: f16, literal-subscripts, rejections

func.func @f(%v: memref<8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[0]
      {access_tile_order = affine_map<(d0) -> (d0)>} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}
