// C129: reading scratchpad with another element type
// level: L2
// expected: error: as f32, but it holds f16
// tags: f16, f32, scratchpad

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index) {
  %at0 = arith.constant 0 : index
  %lx = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xf16>
  %lx_out_view = ktdp.construct_memory_view %lx, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16>
  %lx_out_tile = ktdp.construct_access_tile %lx_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %a, %lx_out_tile : tensor<4xf16>, <4xindex>
  %b_view = ktdp.construct_memory_view %lx, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<ct_local>} : memref<2xf32>
  %b_tile = ktdp.construct_access_tile %b_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf32> -> !ktdp.access_tile<2xindex>
  %b = ktdp.load %b_tile : <2xindex> -> tensor<2xf32>
  return
}
