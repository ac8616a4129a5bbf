// C109: a set may start below the anchor
// level: L2
// expected: values
// tags: f16

#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#part3 = affine_set<(d0) : (d0 + 1 >= 0, -d0 + 1 >= 0)>
#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %at3 = arith.constant 3 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [8], strides: [1]
      {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at3]
      {access_tile_order = #id1, access_tile_set = #part3} : memref<8xf16> -> !ktdp.access_tile<3xindex>
  %a = ktdp.load %a_tile : <3xindex> -> tensor<3xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [3], strides: [1]
      {coordinate_set = #box3, memory_space = #ktdp.memory_space<global>} : memref<3xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<3xf16> -> !ktdp.access_tile<3xindex>
  ktdp.store %a, %y_out_tile : tensor<3xf16>, <3xindex>
  return
}
