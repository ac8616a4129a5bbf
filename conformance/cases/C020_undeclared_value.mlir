// C020: an index expression names a value that exists
// level: L0
// expected: error: use of undeclared SSA value name
// tags: f16, rejections, text

func.func @f(%v: memref<4xf16>) {
  %t = ktdp.construct_access_tile %v[%nobody] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 == 0)>} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  return
}
