// C431: a tile adds to its own place again and again
// level: L3
// expected: values
// tags: control-flow, f32, grid, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %k1 = arith.constant 1 : index
  %k3 = arith.constant 3 : index
  scf.for %i = %k0 to %k3 step %k1 {
    %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
    %v_tile = ktdp.construct_access_tile %v_view[%t]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf32> -> !ktdp.access_tile<1xindex>
    %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf32>
    %a_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
    %a_tile = ktdp.construct_access_tile %a_view[%t]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf32> -> !ktdp.access_tile<1xindex>
    %a = ktdp.load %a_tile : <1xindex> -> tensor<1xf32>
    %s = arith.addf %a, %v : tensor<1xf32>
    %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
    %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf32> -> !ktdp.access_tile<1xindex>
    ktdp.store %s, %y_out_tile : tensor<1xf32>, <1xindex>
  }
  return
}
