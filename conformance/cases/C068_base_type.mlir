// C068: the base is a memref or a tensor
// level: L1
// expected: error: must be ranked memref or ranked tensor
// tags: i32, literal-subscripts, rejections

func.func @f(%v: i32, %i: index) {
  %t = ktdp.construct_access_tile %v[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : i32 -> !ktdp.access_tile<4xindex>
  return
}
