// C112: a load gives what the last store wrote
// level: L2
// expected: values
// tags: f16

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index) {
  %at0 = arith.constant 0 : index
  %at2 = arith.constant 2 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xf16>
  %b = arith.addf %a, %a : tensor<4xf16>
  %x1_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %x1_tile = ktdp.construct_access_tile %x1_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  ktdp.store %b, %x1_tile : tensor<4xf16>, <4xindex>
  %c_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %c_tile = ktdp.construct_access_tile %c_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  %c = ktdp.load %c_tile : <2xindex> -> tensor<2xf16>
  %x2_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %x2_tile = ktdp.construct_access_tile %x2_view[%at2]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<4xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %c, %x2_tile : tensor<2xf16>, <2xindex>
  return
}
