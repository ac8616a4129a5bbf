// C066: a constant tile beyond a static base
// level: L1
// expected: error: reaches coordinates 5 to 8 in dim 0, beyond the base of size 8
// tags: bounds, f16, literal-subscripts, rejections

func.func @f(%v: memref<8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[5]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}
