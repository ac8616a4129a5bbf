// C114: a masked view reads zero before its start
// level: L2
// expected: values
// tags: affine-subscripts, dynamic-sizes, f16, masks

#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @main(%x: index, %n: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [%n], strides: [1]
      {coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%n - 5]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<?xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %a, %y_out_tile : tensor<4xf16>, <4xindex>
  return
}
