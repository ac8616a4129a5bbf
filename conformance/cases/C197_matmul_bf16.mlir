// C197: the sum of a block's products of bf16 is exact: what cancels leaves the small product
// level: L2
// expected: values
// tags: bf16, f32, matmul, numerics

#box2x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#box2x4 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: index, %b: index, %c: index) {
  %at0 = arith.constant 0 : index
  %l_view = ktdp.construct_memory_view %a, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #box2x4, memory_space = #ktdp.memory_space<global>} : memref<2x4xbf16>
  %l_tile = ktdp.construct_access_tile %l_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x4} : memref<2x4xbf16> -> !ktdp.access_tile<2x4xindex>
  %l = ktdp.load %l_tile : <2x4xindex> -> tensor<2x4xbf16>
  %r_view = ktdp.construct_memory_view %b, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xbf16>
  %r_tile = ktdp.construct_access_tile %r_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box4x2} : memref<4x2xbf16> -> !ktdp.access_tile<4x2xindex>
  %r = ktdp.load %r_tile : <4x2xindex> -> tensor<4x2xbf16>
  %o_view = ktdp.construct_memory_view %c, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf32>
  %o_tile = ktdp.construct_access_tile %o_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf32> -> !ktdp.access_tile<2x2xindex>
  %o = ktdp.load %o_tile : <2x2xindex> -> tensor<2x2xf32>
  %p = linalg.matmul ins(%l, %r : tensor<2x4xbf16>, tensor<4x2xbf16>)
      outs(%o : tensor<2x2xf32>) -> tensor<2x2xf32>
  %w_view = ktdp.construct_memory_view %c, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #box2x2, memory_space = #ktdp.memory_space<global>} : memref<2x2xf32>
  %w_tile = ktdp.construct_access_tile %w_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x2} : memref<2x2xf32> -> !ktdp.access_tile<2x2xindex>
  ktdp.store %p, %w_tile : tensor<2x2xf32>, <2x2xindex>
  return
}
