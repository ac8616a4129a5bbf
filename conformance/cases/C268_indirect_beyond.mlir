// C268: a direct subscript beyond the base
// level: L1
// expected: error: beyond the base of size 8
// tags: bounds, f16, i32, indirect, rejections

func.func @f(%x: memref<9x8xf16>, %rows: memref<8xi32>, %k: index) {
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %x[ind(%rows[%i]), (%j + 7)]
      {variables_space_order = affine_map<(d0, d1) -> (d0, d1)>, variables_space_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>}
      : memref<9x8xf16>, memref<8xi32> -> !ktdp.access_tile<4x2xindex>
  return
}
