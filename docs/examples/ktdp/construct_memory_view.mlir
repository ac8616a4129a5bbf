// given  %x: f16 iota(3, 4)
// given  %n: i64 2
// given  %y: f16 fill(3) 9
// result %y: f16 [1, 5, 0]
#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
func.func @column(%x: index, %n: index, %y: index) {
  // Column 1 of the rows below n: rows beyond are read as zero.
  %c1 = arith.constant 1 : index
  %column = arith.addi %x, %c1 : index
  %v_view = ktdp.construct_memory_view %column, sizes: [%n], strides: [4]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %v_tile = ktdp.construct_access_tile %v_view[0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<?xf16> -> !ktdp.access_tile<3xindex>
  %v = ktdp.load %v_tile : <3xindex> -> tensor<3xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [3], strides: [1]
      {coordinate_set = #box3, memory_space = #ktdp.memory_space<global>} : memref<3xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<3xf16> -> !ktdp.access_tile<3xindex>
  ktdp.store %v, %y_out_tile : tensor<3xf16>, <3xindex>
  return
}
