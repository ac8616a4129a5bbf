// C269: the tile's shape is the order applied to the extents
// level: L1
// expected: error: shape
// tags: f16, i32, indirect, order, rejections
// mode: strict

func.func @f(%x: memref<9x8xf16>, %rows: memref<8xi32>, %k: index) {
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %x[ind(%rows[%i]), (%j)]
      {variables_space_order = affine_map<(d0, d1) -> (d1, d0)>, variables_space_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>}
      : memref<9x8xf16>, memref<8xi32> -> !ktdp.access_tile<4x2xindex>
  return
}
