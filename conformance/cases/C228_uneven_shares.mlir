// C228: 7 rows on 3 tiles: the last tile is masked
// level: L3
// expected: values
// tags: dynamic-sizes, f16, grid, masks, tile-ids

#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
func.func @main(%x: index, %y: index) attributes {grid = [3]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %share = arith.constant 3 : index
  %all = arith.constant 7 : index
  %first = arith.muli %t, %share : index
  %left = arith.subi %all, %first : index
  %rows = arith.minsi %left, %share : index
  %in = arith.addi %x, %first : index
  %out = arith.addi %y, %first : index
  %v_view = ktdp.construct_memory_view %in, sizes: [%rows], strides: [1]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<?xf16> -> !ktdp.access_tile<3xindex>
  %v = ktdp.load %v_tile : <3xindex> -> tensor<3xf16>
  %w = arith.addf %v, %v : tensor<3xf16>
  %out_out_view = ktdp.construct_memory_view %out, sizes: [%rows], strides: [1]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %out_out_tile = ktdp.construct_access_tile %out_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<?xf16> -> !ktdp.access_tile<3xindex>
  ktdp.store %w, %out_out_tile : tensor<3xf16>, <3xindex>
  return
}
