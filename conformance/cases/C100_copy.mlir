// C100: a tile is loaded and stored
// level: L2
// expected: values
// tags: f16

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  %a = ktdp.load %a_tile : <2x3xindex> -> tensor<2x3xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  ktdp.store %a, %y_out_tile : tensor<2x3xf16>, <2x3xindex>
  return
}
