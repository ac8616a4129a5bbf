// C164: bf16 has the range of f32: subnormals too, and what is too large is an infinity
// level: L2
// expected: values
// tags: bf16, numerics

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %z: index, %y: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xbf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xbf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xbf16>
  %b_view = ktdp.construct_memory_view %z, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xbf16>
  %b_tile = ktdp.construct_access_tile %b_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xbf16> -> !ktdp.access_tile<4xindex>
  %b = ktdp.load %b_tile : <4xindex> -> tensor<4xbf16>
  %r = arith.addf %a, %b : tensor<4xbf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xbf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xbf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %r, %y_out_tile : tensor<4xbf16>, <4xindex>
  return
}
