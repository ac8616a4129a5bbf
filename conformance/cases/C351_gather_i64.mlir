// C351: index views of i64
// level: L2
// expected: values
// tags: f16, i64, indirect

#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %r: index, %y: index) {
  %at0 = arith.constant 0 : index
  %table = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf16>
  %rows = ktdp.construct_memory_view %r, sizes: [3], strides: [1]
      {coordinate_set = #box3, memory_space = #ktdp.memory_space<global>} : memref<3xi64>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %table[ind(%rows[%i]), (%j)]
      {variables_space_order = #id2, variables_space_set = #box3x2}
      : memref<4x2xf16>, memref<3xi64> -> !ktdp.access_tile<3x2xindex>
  %a = ktdp.load %t : <3x2xindex> -> tensor<3x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
      {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<3x2xf16> -> !ktdp.access_tile<3x2xindex>
  ktdp.store %a, %y_out_tile : tensor<3x2xf16>, <3x2xindex>
  return
}
