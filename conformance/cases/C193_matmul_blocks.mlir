// C193: blocks of 64 are added in sequence, each rounded
// level: L2
// expected: values
// tags: f16, f32, matmul, numerics

#box1x192 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 191 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box192x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 191 >= 0, d1 >= 0, -d1 >= 0)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @main(%a: index, %b: index, %c: index) {
  %at0 = arith.constant 0 : index
  %l_view = ktdp.construct_memory_view %a, sizes: [1, 192], strides: [192, 1]
      {coordinate_set = #box1x192, memory_space = #ktdp.memory_space<global>} : memref<1x192xf16>
  %l_tile = ktdp.construct_access_tile %l_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x192} : memref<1x192xf16> -> !ktdp.access_tile<1x192xindex>
  %l = ktdp.load %l_tile : <1x192xindex> -> tensor<1x192xf16>
  %r_view = ktdp.construct_memory_view %b, sizes: [192, 1], strides: [1, 1]
      {coordinate_set = #box192x1, memory_space = #ktdp.memory_space<global>} : memref<192x1xf16>
  %r_tile = ktdp.construct_access_tile %r_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box192x1} : memref<192x1xf16> -> !ktdp.access_tile<192x1xindex>
  %r = ktdp.load %r_tile : <192x1xindex> -> tensor<192x1xf16>
  %o_view = ktdp.construct_memory_view %c, sizes: [1, 1], strides: [1, 1]
      {coordinate_set = #box1x1, memory_space = #ktdp.memory_space<global>} : memref<1x1xf32>
  %o_tile = ktdp.construct_access_tile %o_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<1x1xf32> -> !ktdp.access_tile<1x1xindex>
  %o = ktdp.load %o_tile : <1x1xindex> -> tensor<1x1xf32>
  %p = linalg.matmul ins(%l, %r : tensor<1x192xf16>, tensor<192x1xf16>)
      outs(%o : tensor<1x1xf32>) -> tensor<1x1xf32>
  %w_view = ktdp.construct_memory_view %c, sizes: [1, 1], strides: [1, 1]
      {coordinate_set = #box1x1, memory_space = #ktdp.memory_space<global>} : memref<1x1xf32>
  %w_tile = ktdp.construct_access_tile %w_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<1x1xf32> -> !ktdp.access_tile<1x1xindex>
  ktdp.store %p, %w_tile : tensor<1x1xf32>, <1x1xindex>
  return
}
