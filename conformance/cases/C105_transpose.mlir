// C105: order (d1, d0) on a box that is not square
// level: L2
// expected: values
// tags: f16, order

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %at0]
      {access_tile_order = #swap, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<3x2xindex>
  %a = ktdp.load %a_tile : <3x2xindex> -> tensor<3x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
      {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<3x2xf16> -> !ktdp.access_tile<3x2xindex>
  ktdp.store %a, %y_out_tile : tensor<3x2xf16>, <3x2xindex>
  return
}
