// C210: two tiles write one element, even the same value
// level: L3
// expected: error: writes element
// tags: affine-subscripts, f16, grid, races, tile-ids

#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %v = arith.constant dense<1.0> : tensor<2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [8], strides: [1]
      {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t * 1]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<8xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %v, %y_out_tile : tensor<2xf16>, <2xindex>
  return
}
