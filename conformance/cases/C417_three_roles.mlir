// C417: three roles are folded each for itself, on the tile that stores them
// level: L3
// expected: values
// tags: control-flow, f32, grid, inter-tile, reduce, roles, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#first = affine_set<(i)[g] : (i == 0)>
#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %k1 = arith.constant 1 : index
  %k2 = arith.constant 2 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  %v = ktdp.load %v_tile : <1x2xindex> -> tensor<1x2xf32>
  %low = arith.constant dense<-100.0> : tensor<1x2xf32>
  %high = arith.constant dense<100.0> : tensor<1x2xf32>
  %zero = arith.constant dense<0.0> : tensor<1x2xf32>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v, %v, %v : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
  }
  %m:3 = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = #first, identity(%low, %high, %zero : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
      : <(tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>), groups = #one> -> tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32> {
  ^bb0(%a0: tensor<1x2xf32>, %a1: tensor<1x2xf32>, %a2: tensor<1x2xf32>, %b0: tensor<1x2xf32>, %b1: tensor<1x2xf32>, %b2: tensor<1x2xf32>):
    %most = arith.maximumf %a0, %b0 : tensor<1x2xf32>
    %least = arith.minimumf %a1, %b1 : tensor<1x2xf32>
    %sum = arith.addf %a2, %b2 : tensor<1x2xf32>
    ktdp.yield_reduced %most, %least, %sum : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>
  }
  %is_first = arith.cmpi eq, %t, %k0 : index
  scf.if %is_first {
    %y0_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
        {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf32>
    %y0_out_tile = ktdp.construct_access_tile %y0_out_view[%k0, %k0]
        {access_tile_order = #id2, access_tile_set = #box1x2} : memref<3x2xf32> -> !ktdp.access_tile<1x2xindex>
    ktdp.store %m#0, %y0_out_tile : tensor<1x2xf32>, <1x2xindex>
    %y1_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
        {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf32>
    %y1_out_tile = ktdp.construct_access_tile %y1_out_view[%k1, %k0]
        {access_tile_order = #id2, access_tile_set = #box1x2} : memref<3x2xf32> -> !ktdp.access_tile<1x2xindex>
    ktdp.store %m#1, %y1_out_tile : tensor<1x2xf32>, <1x2xindex>
    %y2_out_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
        {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf32>
    %y2_out_tile = ktdp.construct_access_tile %y2_out_view[%k2, %k0]
        {access_tile_order = #id2, access_tile_set = #box1x2} : memref<3x2xf32> -> !ktdp.access_tile<1x2xindex>
    ktdp.store %m#2, %y2_out_tile : tensor<1x2xf32>, <1x2xindex>
  }
  return
}
