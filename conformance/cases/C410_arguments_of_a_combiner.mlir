// C410: a combiner gets all roles of one side, then all of the other
// level: L3
// expected: values
// tags: f32, grid, inter-tile, reduce, roles, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %k: index, %y: index, %z: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  %v = ktdp.load %v_tile : <1x2xindex> -> tensor<1x2xf32>
  %n_view = ktdp.construct_memory_view %k, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %n_tile = ktdp.construct_access_tile %n_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  %n = ktdp.load %n_tile : <1x2xindex> -> tensor<1x2xf32>
  %low = arith.constant dense<-100.0> : tensor<1x2xf32>
  %none = arith.constant dense<-1.0> : tensor<1x2xf32>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x2xf32>, tensor<1x2xf32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v, %n : tensor<1x2xf32>, tensor<1x2xf32>
  }
  %m:2 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #all, identity(%low, %none : tensor<1x2xf32>, tensor<1x2xf32>)
      : <(tensor<1x2xf32>, tensor<1x2xf32>), groups = #one> -> tensor<1x2xf32>, tensor<1x2xf32> {
  ^bb0(%a: tensor<1x2xf32>, %i: tensor<1x2xf32>, %b: tensor<1x2xf32>, %j: tensor<1x2xf32>):
    %c = arith.cmpf ogt, %a, %b : tensor<1x2xf32>
    %s = arith.select %c, %a, %b : tensor<1x2xi1>, tensor<1x2xf32>
    %w = arith.select %c, %i, %j : tensor<1x2xi1>, tensor<1x2xf32>
    ktdp.yield_reduced %s, %w : tensor<1x2xf32>, tensor<1x2xf32>
  }
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %m#0, %y_out_tile : tensor<1x2xf32>, <1x2xindex>
  %z_out_view = ktdp.construct_memory_view %z, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %z_out_tile = ktdp.construct_access_tile %z_out_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %m#1, %z_out_tile : tensor<1x2xf32>, <1x2xindex>
  return
}
