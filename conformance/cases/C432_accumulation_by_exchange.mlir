// C432: tiles add up by an exchange, one of them adds to the place
// level: L3
// expected: values
// tags: control-flow, f32, grid, inter-tile, reduce, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#first = affine_set<(i)[g] : (i == 0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf32> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf32>
  %zero = arith.constant dense<0.0> : tensor<1xf32>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1xf32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v : tensor<1xf32>
  }
  %r = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #first, identity(%zero : tensor<1xf32>)
      : <(tensor<1xf32>), groups = #one> -> tensor<1xf32> {
  ^bb0(%a: tensor<1xf32>, %b: tensor<1xf32>):
    %c = arith.addf %a, %b : tensor<1xf32>
    ktdp.yield_reduced %c : tensor<1xf32>
  }
  %is_first = arith.cmpi eq, %t, %k0 : index
  scf.if %is_first {
    %old_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
        {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf32>
    %old_tile = ktdp.construct_access_tile %old_view[%k0]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf32> -> !ktdp.access_tile<1xindex>
    %old = ktdp.load %old_tile : <1xindex> -> tensor<1xf32>
    %s = arith.addf %old, %r : tensor<1xf32>
    %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
        {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf32>
    %y_out_tile = ktdp.construct_access_tile %y_out_view[%k0]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf32> -> !ktdp.access_tile<1xindex>
    ktdp.store %s, %y_out_tile : tensor<1xf32>, <1xindex>
  }
  return
}
