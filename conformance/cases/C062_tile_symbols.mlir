// C062: one symbol operand per symbol of the set
// level: L1
// expected: error: symbol operand
// tags: f16, literal-subscripts, rejections, sets, symbols

func.func @f(%v: memref<8xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 >= 0)>} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}
