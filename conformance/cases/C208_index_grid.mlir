// C208: the sizes of a grid may be of type index
// level: L3
// expected: values
// tags: grid, i32, tile-ids

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @main(%y: index) attributes {grid = [2 : index]} {
  %i = ktdp.get_compute_tile_id : index
  %c10 = arith.constant 10 : index
  %v0 = arith.addi %c10, %i : index
  %c = arith.index_cast %v0 : index to i32
  %s = tensor.splat %c : tensor<1xi32>
  %y_view = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xi32>
  %y_tile = ktdp.construct_access_tile %y_view[%i]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<2xi32> -> !ktdp.access_tile<1xindex>
  ktdp.store %s, %y_tile : tensor<1xi32>, <1xindex>
  return
}
