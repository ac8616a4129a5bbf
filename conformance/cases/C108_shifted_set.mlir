// C108: a set that starts at 2 is relative to the anchor
// level: L2
// expected: values
// tags: f16, sets

#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#part2 = affine_set<(d0) : (d0 - 2 >= 0, -d0 + 3 >= 0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %at3 = arith.constant 3 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [8], strides: [1]
      {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at3]
      {access_tile_order = #id1, access_tile_set = #part2} : memref<8xf16> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %a_tile : <2xindex> -> tensor<2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %a, %y_out_tile : tensor<2xf16>, <2xindex>
  return
}
