// C145: divsi and remsi truncate towards zero
// level: L2
// expected: values
// tags: i64

#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%y: index) {
  %at0 = arith.constant 0 : index
  %c10 = arith.constant 10 : index
  %m7 = arith.constant -7 : index
  %c2 = arith.constant 2 : index
  %q = arith.divsi %m7, %c2 : index
  %r = arith.remsi %m7, %c2 : index
  %a = arith.muli %q, %c10 : index
  %b = arith.addi %a, %r : index
  %c = arith.index_cast %b : index to i64
  %v = tensor.splat %c : tensor<1xi64>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<global>} : memref<1xi64>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xi64> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %y_out_tile : tensor<1xi64>, <1xindex>
  return
}
