// C134: a negative stride runs backwards
// level: L2
// expected: values
// tags: f16, strides

#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %at = arith.addi %x, %c3 : index
  %a_view = ktdp.construct_memory_view %at, sizes: [2, 2], strides: [-2, -1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf16> -> !ktdp.access_tile<2x2xindex>
  %a = ktdp.load %a_tile : <2x2xindex> -> tensor<2x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf16> -> !ktdp.access_tile<2x2xindex>
  ktdp.store %a, %y_out_tile : tensor<2x2xf16>, <2x2xindex>
  return
}
