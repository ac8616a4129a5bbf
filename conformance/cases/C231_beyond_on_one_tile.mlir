// C231: a tile beyond a static view on one of the tiles
// level: L3
// expected: error: coordinates 3 to 4 in dim 0
// tags: bounds, f16, grid, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<4xf16> -> !ktdp.access_tile<2xindex>
  %v = ktdp.load %v_tile : <2xindex> -> tensor<2xf16>
  return
}
