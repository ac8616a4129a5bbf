// C195: a partial last block of K
// level: L2
// expected: values
// tags: f16, f32, matmul, numerics

#box1x65 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 64 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box65x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 64 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
func.func @main(%a: index, %b: index, %c: index) {
  %at0 = arith.constant 0 : index
  %l_view = ktdp.construct_memory_view %a, sizes: [1, 65], strides: [65, 1]
      {coordinate_set = #box1x65, memory_space = #ktdp.memory_space<global>} : memref<1x65xf16>
  %l_tile = ktdp.construct_access_tile %l_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x65} : memref<1x65xf16> -> !ktdp.access_tile<1x65xindex>
  %l = ktdp.load %l_tile : <1x65xindex> -> tensor<1x65xf16>
  %r_view = ktdp.construct_memory_view %b, sizes: [65, 2], strides: [2, 1]
      {coordinate_set = #box65x2, memory_space = #ktdp.memory_space<global>} : memref<65x2xf16>
  %r_tile = ktdp.construct_access_tile %r_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box65x2} : memref<65x2xf16> -> !ktdp.access_tile<65x2xindex>
  %r = ktdp.load %r_tile : <65x2xindex> -> tensor<65x2xf16>
  %o_view = ktdp.construct_memory_view %c, sizes: [1, 2], strides: [2, 1]
      {coordinate_set = #box1x2, memory_space = #ktdp.memory_space<global>} : memref<1x2xf32>
  %o_tile = ktdp.construct_access_tile %o_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<1x2xf32> -> !ktdp.access_tile<1x2xindex>
  %o = ktdp.load %o_tile : <1x2xindex> -> tensor<1x2xf32>
  %p = linalg.matmul ins(%l, %r : tensor<1x65xf16>, tensor<65x2xf16>)
      outs(%o : tensor<1x2xf32>) -> tensor<1x2xf32>
  %w_view = ktdp.construct_memory_view %c, sizes: [1, 2], strides: [2, 1]
      {coordinate_set = #box1x2, memory_space = #ktdp.memory_space<global>} : memref<1x2xf32>
  %w_tile = ktdp.construct_access_tile %w_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<1x2xf32> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %p, %w_tile : tensor<1x2xf32>, <1x2xindex>
  return
}
