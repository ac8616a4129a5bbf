// C104: a view of rank 0 is one element
// level: L2
// expected: values
// tags: f16, rank-0

#point = affine_set<() : (0 == 0)>
#id0 = affine_map<() -> ()>
func.func @main(%x: index, %y: index) {
  %a_view = ktdp.construct_memory_view %x, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<f16>
  %a_tile = ktdp.construct_access_tile %a_view[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f16> -> !ktdp.access_tile<index>
  %a = ktdp.load %a_tile : <index> -> tensor<f16>
  %b = arith.addf %a, %a : tensor<f16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [], strides: []
      {coordinate_set = #point, memory_space = #ktdp.memory_space<global>} : memref<f16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[]
      {access_tile_order = #id0, access_tile_set = #point} : memref<f16> -> !ktdp.access_tile<index>
  ktdp.store %b, %y_out_tile : tensor<f16>, <index>
  return
}
