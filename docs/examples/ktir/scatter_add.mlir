// given  %x: f32 [1, 2, 4, 8]
// given  %i: i64 [2, 0, 2, 2]
// given  %y: f32 [100, 200, 300]
// result %y: f32 [102, 200, 313]
func.func @accumulate(%x: index, %i: index, %y: index) {
  %x_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %x_tile = ktdp.construct_access_tile %x_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %x_value = ktdp.load %x_tile : <4xindex> -> tensor<4xf32>
  %i_view = ktdp.construct_memory_view %i, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
  %y_view = ktdp.construct_memory_view %y, sizes: [3], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3xf32>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%k) %y_view[ind(%i_view[%k])]
      {variables_space_order = affine_map<(d0) -> (d0)>, variables_space_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>}
      : memref<3xf32>, memref<4xi64> -> !ktdp.access_tile<4xindex>
  ktir.scatter_add %x_value, %t : tensor<4xf32>, !ktdp.access_tile<4xindex>
  return
}
