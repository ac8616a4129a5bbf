// C437: what a mask drops is not written: there is no race
// level: L3
// expected: values
// tags: dynamic-sizes, f32, grid, masks, tile-ids

#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %n: index, %y: index) attributes {grid = [2]} {
  %t = ktdp.get_compute_tile_id : index
  %k2 = arith.constant 2 : index
  %at = arith.muli %t, %k2 : index
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%k0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %v = ktdp.load %v_tile : <4xindex> -> tensor<4xf32>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [%at], strides: [1]
      {coordinate_set = #boxn, memory_space = #ktdp.memory_space<global>} : memref<?xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%k0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<?xf32> -> !ktdp.access_tile<4xindex>
  ktdp.store %v, %y_out_tile : tensor<4xf32>, <4xindex>
  return
}
