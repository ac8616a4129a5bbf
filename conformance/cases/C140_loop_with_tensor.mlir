// C140: a loop carries a tensor
// level: L2
// expected: values
// tags: control-flow, f32

#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%x: index, %n: index, %y: index) {
  %at0 = arith.constant 0 : index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant dense<0.0> : tensor<1xf32>
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %z) -> (tensor<1xf32>) {
    %v_view = ktdp.construct_memory_view %x, sizes: [8], strides: [1]
        {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xf32>
    %v_tile = ktdp.construct_access_tile %v_view[%i]
        {access_tile_order = #id1, access_tile_set = #box1} : memref<8xf32> -> !ktdp.access_tile<1xindex>
    %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf32>
    %b = arith.addf %a, %v : tensor<1xf32>
    scf.yield %b : tensor<1xf32>
  }
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xf32>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf32> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %y_out_tile : tensor<1xf32>, <1xindex>
  return
}
