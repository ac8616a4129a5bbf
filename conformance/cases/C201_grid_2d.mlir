// C201: a grid of two dims
// level: L3
// expected: values
// tags: grid, grid-of-several-dims, i32, tile-ids

#box2x3 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @main(%y: index) attributes {grid = [2, 3]} {
  %i, %j = ktdp.get_compute_tile_id : index, index
  %c10 = arith.constant 10 : index
  %v0 = arith.addi %c10, %i : index
  %m1 = arith.muli %v0, %c10 : index
  %v1 = arith.addi %m1, %j : index
  %c = arith.index_cast %v1 : index to i32
  %s = tensor.splat %c : tensor<1x1xi32>
  %y_view = ktdp.construct_memory_view %y, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = #box2x3, memory_space = #ktdp.memory_space<global>} : memref<2x3xi32>
  %y_tile = ktdp.construct_access_tile %y_view[%i, %j]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<2x3xi32> -> !ktdp.access_tile<1x1xindex>
  ktdp.store %s, %y_tile : tensor<1x1xi32>, <1x1xindex>
  return
}
