// C366: on two dims the first one is slowest
// level: L3
// expected: values
// tags: affine-subscripts, f16, gather, grid, inter-tile, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#box4x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#box8x8 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 7 >= 0)>
#box2x8 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 7 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [4]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4, 4], strides: [4, 1]
      {coordinate_set = #box4x4, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x4} : memref<4x4xf16> -> !ktdp.access_tile<1x4xindex>
  %v = ktdp.load %v_tile : <1x4xindex> -> tensor<1x4xf16>
  %f = ktdp.inter_tile_produce producer_tiles_per_group = #all -> <(tensor<1x4xf16>), groups = #one> {
  ^bb0(%gid: index):
    ktdp.yield_partial %v : tensor<1x4xf16>
  }
  %y0 = ktdp.inter_tile_gather(%f) consumer_tiles_per_group = #all, gather_dimensions = [0, 1]
      : <(tensor<1x4xf16>), groups = #one> -> tensor<2x8xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [8, 8], strides: [8, 1]
      {coordinate_set = #box8x8, memory_space = #ktdp.memory_space<global>} : memref<8x8xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t * 2, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x8} : memref<8x8xf16> -> !ktdp.access_tile<2x8xindex>
  ktdp.store %y0, %y_out_tile : tensor<2x8xf16>, <2x8xindex>
  return
}
