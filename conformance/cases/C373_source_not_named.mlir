// C373: R8: several producers need a dependency set
// level: L3
// expected: error: required
// tags: consume, f16, grid, inter-tile, rules, tile-ids

#all = affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>
#one = affine_set<(g) : (g == 0)>
#box4x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 3 >= 0)>
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
  %y0 = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #all
      : <(tensor<1x4xf16>), groups = #one> -> tensor<1x4xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4, 4], strides: [4, 1]
      {coordinate_set = #box4x4, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x4} : memref<4x4xf16> -> !ktdp.access_tile<1x4xindex>
  ktdp.store %y0, %y_out_tile : tensor<1x4xf16>, <1x4xindex>
  return
}
