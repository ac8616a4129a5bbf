// C211: a tile reads what another one writes
// level: L3
// expected: error: element
// tags: affine-subscripts, f16, grid, races, tile-ids

#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %v_view = ktdp.construct_memory_view %y, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t + 1]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<5xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %w_view = ktdp.construct_memory_view %y, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %w_tile = ktdp.construct_access_tile %w_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<5xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %w_tile : tensor<1xf16>, <1xindex>
  return
}
