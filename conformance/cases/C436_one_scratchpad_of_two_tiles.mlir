// C436: two tiles write one place of a scratchpad
// level: L3
// expected: error: of the same kernel
// tags: f32, grid, other-scratchpads, races, scratchpad, tile-ids

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index) attributes {grid = [2]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xf32> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf32>
  %lx_view = ktdp.construct_memory_view %k0, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local, ct_id = 1>} : memref<1xf32>
  %lx_tile = ktdp.construct_access_tile %lx_view[%k0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf32> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %lx_tile : tensor<1xf32>, <1xindex>
  return
}
