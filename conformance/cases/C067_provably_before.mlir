// C067: a constant tile before the base
// level: L1
// expected: error: reaches coordinates -1 to 2 in dim 0
// tags: f16, literal-subscripts, rejections

func.func @f(%v: memref<8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[-1]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}
