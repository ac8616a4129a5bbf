// C127: a scratchpad load meets two stores, the second over a part of the first
// level: L2
// expected: values
// tags: f16, order, scratchpad

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %lx = arith.constant 0 : index
  %two = arith.constant 2 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xf16>
  %s1_view = ktdp.construct_memory_view %lx, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16>
  %s1_tile = ktdp.construct_access_tile %s1_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %a, %s1_tile : tensor<4xf16>, <4xindex>
  %b_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %b_tile = ktdp.construct_access_tile %b_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  %b = ktdp.load %b_tile : <2xindex> -> tensor<2xf16>
  %s2_view = ktdp.construct_memory_view %two, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<ct_local>} : memref<2xf16>
  %s2_tile = ktdp.construct_access_tile %s2_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %b, %s2_tile : tensor<2xf16>, <2xindex>
  %c_view = ktdp.construct_memory_view %lx, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<ct_local>} : memref<2x2xf16>
  %c_tile = ktdp.construct_access_tile %c_view[%at0, %at0]
      {access_tile_order = #swap, access_tile_set = #box2x2} : memref<2x2xf16> -> !ktdp.access_tile<2x2xindex>
  %c = ktdp.load %c_tile : <2x2xindex> -> tensor<2x2xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf16> -> !ktdp.access_tile<2x2xindex>
  ktdp.store %c, %y_out_tile : tensor<2x2xf16>, <2x2xindex>
  return
}
