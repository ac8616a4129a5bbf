// C400: numbers are subscripts
// level: L2
// expected: values
// tags: f16, literal-subscripts

#box3x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %y: index) {
  %a_view = ktdp.construct_memory_view %x, sizes: [3, 4], strides: [4, 1]
      {coordinate_set = #box3x4, memory_space = #ktdp.memory_space<global>} : memref<3x4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[1, 2]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<3x4xf16> -> !ktdp.access_tile<2x2xindex>
  %a = ktdp.load %a_tile : <2x2xindex> -> tensor<2x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[0, 0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf16> -> !ktdp.access_tile<2x2xindex>
  ktdp.store %a, %y_out_tile : tensor<2x2xf16>, <2x2xindex>
  return
}
