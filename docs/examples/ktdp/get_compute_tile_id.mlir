// given  %y: i64 fill(4) 0
// result %y: i64 [0, 1, 2, 3]
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @iota(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %i = arith.index_cast %t : index to i64
  %v = tensor.splat %i : tensor<1xi64>
  %y_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
  %y_tile = ktdp.construct_access_tile %y_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xi64> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %y_tile : tensor<1xi64>, <1xindex>
  return
}
