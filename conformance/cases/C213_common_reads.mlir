// C213: all tiles may read one element, and update their own
// level: L3
// expected: values
// tags: f16, grid, tile-ids

#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [4]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %w_view = ktdp.construct_memory_view %x, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf16>
  %w_tile = ktdp.construct_access_tile %w_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  %w = ktdp.load %w_tile : <1xindex> -> tensor<1xf16>
  %v_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %s = arith.addf %v, %w : tensor<1xf16>
  %o_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %o_tile = ktdp.construct_access_tile %o_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %o_tile : tensor<1xf16>, <1xindex>
  return
}
