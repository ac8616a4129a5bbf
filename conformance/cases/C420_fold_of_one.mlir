// C420: a tile folds what it receives, and no identity besides
// level: L3
// expected: values
// tags: dependencies, f32, grid, inter-tile, reduce, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 1 >= 0)>
#before = affine_set<(p)[c] : (c - p >= 0, p >= 0, -p + 1 >= 0)>
#one = affine_set<(g) : (g == 0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) attributes {grid = [2]} {
  %t = ktdp.get_compute_tile_id : index
  %v_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xf32> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf32>
  %zero = arith.constant dense<0.0> : tensor<1xf32>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1xf32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v : tensor<1xf32>
  }
  %s = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, producer_dependency_per_consumer = #before, identity(%zero : tensor<1xf32>)
      : <(tensor<1xf32>), groups = #one> -> tensor<1xf32> {
  ^bb0(%a: tensor<1xf32>, %b: tensor<1xf32>):
    %c = arith.addf %a, %b : tensor<1xf32>
    ktdp.yield_reduced %c : tensor<1xf32>
  }
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xf32> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %y_out_tile : tensor<1xf32>, <1xindex>
  return
}
