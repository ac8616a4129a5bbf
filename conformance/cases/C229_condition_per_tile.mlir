// C229: a condition on the tile id
// level: L3
// expected: values
// tags: control-flow, f16, grid, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %c2 = arith.constant 2 : index
  %v = arith.constant dense<1.0> : tensor<1xf16>
  %c = arith.cmpi slt, %t, %c2 : index
  scf.if %c {
    %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
        {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
    ktdp.store %v, %y_out_tile : tensor<1xf16>, <1xindex>
  }
  return
}
