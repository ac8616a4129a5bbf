// C110: one value in two index expressions
// level: L2
// expected: values
// tags: f16

#box4x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%x: index, %i: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4, 4], strides: [4, 1]
      {coordinate_set = #box4x4, memory_space = #ktdp.memory_space<global>} : memref<4x4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%i, %i]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x4xf16> -> !ktdp.access_tile<1x2xindex>
  %a = ktdp.load %a_tile : <1x2xindex> -> tensor<1x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1, 2], strides: [2, 1]
      {coordinate_set = #box1x2, memory_space = #ktdp.memory_space<global>} : memref<1x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<1x2xf16> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %a, %y_out_tile : tensor<1x2xf16>, <1x2xindex>
  return
}
