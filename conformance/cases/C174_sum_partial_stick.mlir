// C174: a last partial stick is filled with zeros
// level: L2
// expected: values
// tags: f32, numerics, reductions

#box1x130 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 129 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [1, 130], strides: [130, 1]
      {coordinate_set = #box1x130, memory_space = #ktdp.memory_space<global>} : memref<1x130xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x130} : memref<1x130xf32> -> !ktdp.access_tile<1x130xindex>
  %v = ktdp.load %v_tile : <1x130xindex> -> tensor<1x130xf32>
  %i = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1xf32>
  %o = linalg.fill ins(%i : f32) outs(%e : tensor<1xf32>) -> tensor<1xf32>
  %s = linalg.reduce { arith.addf } ins(%v : tensor<1x130xf32>) outs(%o : tensor<1xf32>) dimensions = [1]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf32> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %y_out_tile : tensor<1xf32>, <1xindex>
  return
}
