// C178: a reduction along the first dim has the same order
// level: L2
// expected: values
// tags: f32, numerics, reductions

#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [3, 2], strides: [2, 1]
      {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<3x2xf32> -> !ktdp.access_tile<3x2xindex>
  %v = ktdp.load %v_tile : <3x2xindex> -> tensor<3x2xf32>
  %i = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2xf32>
  %o = linalg.fill ins(%i : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %s = linalg.reduce { arith.addf } ins(%v : tensor<3x2xf32>) outs(%o : tensor<2xf32>) dimensions = [0]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf32> -> !ktdp.access_tile<2xindex>
  ktdp.store %s, %y_out_tile : tensor<2xf32>, <2xindex>
  return
}
