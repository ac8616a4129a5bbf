// C111: floordiv, ceildiv, mod and products of index expressions
// level: L2
// expected: values
// tags: affine-subscripts, f16

#box4x8 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 7 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @main(%x: index, %i: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4, 8], strides: [8, 1]
      {coordinate_set = #box4x8, memory_space = #ktdp.memory_space<global>} : memref<4x8xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%i floordiv 4, (%i + 1) mod 8]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<4x8xf16> -> !ktdp.access_tile<1x1xindex>
  %a = ktdp.load %a_tile : <1x1xindex> -> tensor<1x1xf16>
  %b_view = ktdp.construct_memory_view %x, sizes: [4, 8], strides: [8, 1]
      {coordinate_set = #box4x8, memory_space = #ktdp.memory_space<global>} : memref<4x8xf16>
  %b_tile = ktdp.construct_access_tile %b_view[%i ceildiv 4, %i * 2 - 8]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<4x8xf16> -> !ktdp.access_tile<1x1xindex>
  %b = ktdp.load %b_tile : <1x1xindex> -> tensor<1x1xf16>
  %s = arith.addf %a, %b : tensor<1x1xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1, 1], strides: [1, 1]
      {coordinate_set = #box1x1, memory_space = #ktdp.memory_space<global>} : memref<1x1xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<1x1xf16> -> !ktdp.access_tile<1x1xindex>
  ktdp.store %s, %y_out_tile : tensor<1x1xf16>, <1x1xindex>
  return
}
