// C230: loops whose trip count depends on the tile
// level: L3
// expected: values
// tags: control-flow, f16, grid, tile-ids

#box4x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @main(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant dense<1.0> : tensor<1xf16>
  scf.for %i = %c0 to %t step %c1 {
    %u = arith.constant dense<2.0> : tensor<1x1xf16>
    %y_out_view = ktdp.construct_memory_view %y, sizes: [4, 4], strides: [4, 1]
        {coordinate_set = #box4x4, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
    %y_out_tile = ktdp.construct_access_tile %y_out_view[%t, %i]
        {access_tile_order = #id2, access_tile_set = #box1x1} : memref<4x4xf16> -> !ktdp.access_tile<1x1xindex>
    ktdp.store %u, %y_out_tile : tensor<1x1xf16>, <1x1xindex>
  }
  return
}
