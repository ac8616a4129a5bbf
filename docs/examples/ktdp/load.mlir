// given  %x: f16 [1, 2, 3, 4]
// given  %y: f16 fill(4) 0
// result %y: f16 [2, 4, 6, 8]
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @double(%x: index, %y: index) {
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %v = ktdp.load %v_tile : <4xindex> -> tensor<4xf16>
  %w = arith.addf %v, %v : tensor<4xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %w, %y_out_tile : tensor<4xf16>, <4xindex>
  return
}
