// C401: a number is a subscript of an index view
// level: L2
// expected: values
// tags: f16, i32, indirect, literal-subscripts

#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %r: index, %y: index) {
  %k0 = arith.constant 0 : index
  %table_view = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf16>
  %rows_view = ktdp.construct_memory_view %r, sizes: [3], strides: [1]
      {coordinate_set = #box3, memory_space = #ktdp.memory_space<global>} : memref<3xi32>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %table_view[ind(%rows_view[1]), (%j)]
      {variables_space_order = #id2, variables_space_set = #box1x2} : memref<4x2xf16>, memref<3xi32> -> !ktdp.access_tile<1x2xindex>
  %a = ktdp.load %t : <1x2xindex> -> tensor<1x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1, 2], strides: [2, 1]
      {coordinate_set = #box1x2, memory_space = #ktdp.memory_space<global>} : memref<1x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%k0, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<1x2xf16> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %a, %y_out_tile : tensor<1x2xf16>, <1x2xindex>
  return
}
