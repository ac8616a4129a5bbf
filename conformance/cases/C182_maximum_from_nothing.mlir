// C182: an uninitialised accumulator of a maximum stands for minus infinity
// level: L2
// expected: values
// tags: f16, numerics, reductions

#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [1, 2], strides: [2, 1]
      {coordinate_set = #box1x2, memory_space = #ktdp.memory_space<global>} : memref<1x2xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<1x2xf16> -> !ktdp.access_tile<1x2xindex>
  %v = ktdp.load %v_tile : <1x2xindex> -> tensor<1x2xf16>
  %e = tensor.empty() : tensor<1xf16>
  %s = linalg.reduce { arith.maximumf } ins(%v : tensor<1x2xf16>) outs(%e : tensor<1xf16>) dimensions = [1]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %y_out_tile : tensor<1xf16>, <1xindex>
  return
}
