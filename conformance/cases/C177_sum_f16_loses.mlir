// C177: and loses what is added one by one
// level: L2
// expected: values

#box128 = affine_set<(d0) : (d0 >= 0, -d0 + 127 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#point = affine_set<() : (0 == 0)>
#id0 = affine_map<() -> ()>
func.func @main(%x: index, %y: index) {
  %v_view = ktdp.construct_memory_view %x, sizes: [128], strides: [1]
      {coordinate_set = #box128, memory_space = #ktdp.memory_space<global>} : memref<128xf16>
  %v_tile = ktdp.construct_access_tile %v_view[0]
      {access_tile_order = #id1, access_tile_set = #box128} : memref<128xf16> -> !ktdp.access_tile<128xindex>
  %v = ktdp.load %v_tile : <128xindex> -> tensor<128xf16>
  %i = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<f16>
  %o = linalg.fill ins(%i : f16) outs(%e : tensor<f16>) -> tensor<f16>
  %s = linalg.reduce { arith.addf } ins(%v : tensor<128xf16>) outs(%o : tensor<f16>) dimensions = [0]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<f16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f16> -> !ktdp.access_tile<index>
  ktdp.store %s, %y_out_tile : tensor<f16>, <index>
  return
}
