// C170: the lanes of a stick are added by a halving tree
// level: L2
// expected: values

#box3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#point = affine_set<() : (0 == 0)>
#id0 = affine_map<() -> ()>
func.func @main(%x: index, %y: index) {
  %v_view = ktdp.construct_memory_view %x, sizes: [3], strides: [1]
      {coordinate_set = #box3, memory_space = #ktdp.memory_space<global>} : memref<3xf32>
  %v_tile = ktdp.construct_access_tile %v_view[0]
      {access_tile_order = #id1, access_tile_set = #box3} : memref<3xf32> -> !ktdp.access_tile<3xindex>
  %v = ktdp.load %v_tile : <3xindex> -> tensor<3xf32>
  %i = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %o = linalg.fill ins(%i : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %s = linalg.reduce { arith.addf } ins(%v : tensor<3xf32>) outs(%o : tensor<f32>) dimensions = [0]
  %y_out_view = ktdp.construct_memory_view %y, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<f32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f32> -> !ktdp.access_tile<index>
  ktdp.store %s, %y_out_tile : tensor<f32>, <index>
  return
}
