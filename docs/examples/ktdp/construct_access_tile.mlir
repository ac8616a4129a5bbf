// given  %x: f16 iota(4, 4)
// given  %y: f16 fill(3, 2) 0
// result %y: f16 [[5, 9], [6, 10], [7, 11]]
#box4x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @transpose(%x: index, %y: index) {
  // Rows 1 and 2, columns 1 to 3, transposed.
  %v_view = ktdp.construct_memory_view %x, sizes: [4, 4], strides: [4, 1]
      {coordinate_set = #box4x4, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[1, 1]
      {access_tile_order = #swap, access_tile_set = #box2x3} : memref<4x4xf16> -> !ktdp.access_tile<3x2xindex>
  %v = ktdp.load %v_tile : <3x2xindex> -> tensor<3x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
      {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[0, 0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<3x2xf16> -> !ktdp.access_tile<3x2xindex>
  ktdp.store %v, %y_out_tile : tensor<3x2xf16>, <3x2xindex>
  return
}
