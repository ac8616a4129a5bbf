// C179: a maximum with identity minus infinity
// level: L2
// expected: values
// tags: f16, numerics, reductions

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %y: index) {
  %at0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box2x3} : memref<2x3xf16> -> !ktdp.access_tile<2x3xindex>
  %v = ktdp.load %v_tile : <2x3xindex> -> tensor<2x3xf16>
  %i = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<2xf16>
  %o = linalg.fill ins(%i : f16) outs(%e : tensor<2xf16>) -> tensor<2xf16>
  %s = linalg.reduce { arith.maximumf } ins(%v : tensor<2x3xf16>) outs(%o : tensor<2xf16>) dimensions = [1]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %s, %y_out_tile : tensor<2xf16>, <2xindex>
  return
}
