// C106: a cyclic order is not its inverse, in a load
// level: L2
// expected: values
// tags: f16, order

#box2x3x4 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 3 >= 0)>
#order = affine_map<(d0, d1, d2) -> (d2, d0, d1)>
#box4x2x3 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 2 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [2, 3, 4], strides: [12, 4, 1]
      {coordinate_set = #box2x3x4, memory_space = #ktdp.memory_space<global>} : memref<2x3x4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %at0, %at0]
      {access_tile_order = #order, access_tile_set = #box2x3x4} : memref<2x3x4xf16> -> !ktdp.access_tile<4x2x3xindex>
  %a = ktdp.load %a_tile : <4x2x3xindex> -> tensor<4x2x3xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4, 2, 3], strides: [6, 3, 1]
      {coordinate_set = #box4x2x3, memory_space = #ktdp.memory_space<global>} : memref<4x2x3xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0, %at0]
      {access_tile_order = #id3, access_tile_set = #box4x2x3} : memref<4x2x3xf16> -> !ktdp.access_tile<4x2x3xindex>
  ktdp.store %a, %y_out_tile : tensor<4x2x3xf16>, <4x2x3xindex>
  return
}
