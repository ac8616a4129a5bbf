// C202: a grid of three dims
// level: L3
// expected: values
// tags: grid, grid-of-several-dims, i32, tile-ids

#box2x1x2 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 >= 0, d2 >= 0, -d2 + 1 >= 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#box1x1x1 = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0, d2 >= 0, -d2 >= 0)>
func.func @main(%y: index) attributes {grid = [2, 1, 2]} {
  %i, %j, %k = ktdp.get_compute_tile_id : index, index, index
  %c10 = arith.constant 10 : index
  %v0 = arith.addi %c10, %i : index
  %m1 = arith.muli %v0, %c10 : index
  %v1 = arith.addi %m1, %j : index
  %m2 = arith.muli %v1, %c10 : index
  %v2 = arith.addi %m2, %k : index
  %c = arith.index_cast %v2 : index to i32
  %s = tensor.splat %c : tensor<1x1x1xi32>
  %y_view = ktdp.construct_memory_view %y, sizes: [2, 1, 2], strides: [2, 2, 1]
      {coordinate_set = #box2x1x2, memory_space = #ktdp.memory_space<global>} : memref<2x1x2xi32>
  %y_tile = ktdp.construct_access_tile %y_view[%i, %j, %k]
      {access_tile_order = #id3, access_tile_set = #box1x1x1} : memref<2x1x2xi32> -> !ktdp.access_tile<1x1x1xindex>
  ktdp.store %s, %y_tile : tensor<1x1x1xi32>, <1x1x1xindex>
  return
}
