// C183: an uninitialised accumulator of a sum stands for zero
// level: L2
// expected: values

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#point = affine_set<() : (0 == 0)>
#id0 = affine_map<() -> ()>
func.func @main(%x: index, %y: index) {
  %v_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf32> -> !ktdp.access_tile<2xindex>
  %v = ktdp.load %v_tile : <2xindex> -> tensor<2xf32>
  %e = tensor.empty() : tensor<f32>
  %s = linalg.reduce { arith.addf } ins(%v : tensor<2xf32>) outs(%e : tensor<f32>) dimensions = [0]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<f32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f32> -> !ktdp.access_tile<index>
  ktdp.store %s, %y_out_tile : tensor<f32>, <index>
  return
}
