// C192: the products of a block are summed without loss
// level: L2
// expected: values
// tags: f16, f32, matmul, numerics

#box1x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box3x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 >= 0)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @main(%a: index, %b: index, %c: index) {
  %at0 = arith.constant 0 : index
  %l_view = ktdp.construct_memory_view %a, sizes: [1, 3], strides: [3, 1]
      {coordinate_set = #box1x3, memory_space = #ktdp.memory_space<global>} : memref<1x3xf16>
  %l_tile = ktdp.construct_access_tile %l_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x3} : memref<1x3xf16> -> !ktdp.access_tile<1x3xindex>
  %l = ktdp.load %l_tile : <1x3xindex> -> tensor<1x3xf16>
  %r_view = ktdp.construct_memory_view %b, sizes: [3, 1], strides: [1, 1]
      {coordinate_set = #box3x1, memory_space = #ktdp.memory_space<global>} : memref<3x1xf16>
  %r_tile = ktdp.construct_access_tile %r_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x1} : memref<3x1xf16> -> !ktdp.access_tile<3x1xindex>
  %r = ktdp.load %r_tile : <3x1xindex> -> tensor<3x1xf16>
  %o_view = ktdp.construct_memory_view %c, sizes: [1, 1], strides: [1, 1]
      {coordinate_set = #box1x1, memory_space = #ktdp.memory_space<global>} : memref<1x1xf32>
  %o_tile = ktdp.construct_access_tile %o_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<1x1xf32> -> !ktdp.access_tile<1x1xindex>
  %o = ktdp.load %o_tile : <1x1xindex> -> tensor<1x1xf32>
  %p = linalg.matmul ins(%l, %r : tensor<1x3xf16>, tensor<3x1xf16>)
      outs(%o : tensor<1x1xf32>) -> tensor<1x1xf32>
  %w_view = ktdp.construct_memory_view %c, sizes: [1, 1], strides: [1, 1]
      {coordinate_set = #box1x1, memory_space = #ktdp.memory_space<global>} : memref<1x1xf32>
  %w_tile = ktdp.construct_access_tile %w_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<1x1xf32> -> !ktdp.access_tile<1x1xindex>
  ktdp.store %p, %w_tile : tensor<1x1xf32>, <1x1xindex>
  return
}
