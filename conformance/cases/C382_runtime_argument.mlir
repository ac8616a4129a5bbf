// C382: the value of a runtime argument, and its granularity
// level: L2
// expected: values
// tags: f16, runtime-args

#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %n: !ktdp.runtime_arg<index, granularity=2, upperbound=6>, %y: index) {
  %at0 = arith.constant 0 : index
  %i = ktdp.runtime_arg_extract value from %n : <index, granularity=2, upperbound=6> -> index
  %g = ktdp.runtime_arg_extract granularity from %n : <index, granularity=2, upperbound=6> -> index
  %k = arith.divui %i, %g : index
  %a_view = ktdp.construct_memory_view %x, sizes: [8], strides: [1]
      {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%k]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<8xf16> -> !ktdp.access_tile<1xindex>
  %a = ktdp.load %a_tile : <1xindex> -> tensor<1xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %a, %y_out_tile : tensor<1xf16>, <1xindex>
  return
}
