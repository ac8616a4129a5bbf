// C383: a tile reads what another one writes to its scratchpad in the same kernel
// level: L3
// expected: error: of the same kernel
// tags: f16, grid, other-scratchpads, races, scratchpad, tile-ids

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [2]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %lx = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %lx_out_view = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local>} : memref<1xf16>
  %lx_out_tile = ktdp.construct_access_tile %lx_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %lx_out_tile : tensor<1xf16>, <1xindex>
  %w_view = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local, ct_id = 0>} : memref<1xf16>
  %w_tile = ktdp.construct_access_tile %w_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  %w = ktdp.load %w_tile : <1xindex> -> tensor<1xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %w, %y_out_tile : tensor<1xf16>, <1xindex>
  return
}
