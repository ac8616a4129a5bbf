// given  %x: f32 [3, 1, 3, 2]
// given  %n: i64 [0, 1, 2, 3]
// given  %y: i64 fill(4) 0
// result %y: i64 [0, 2, 3, 1]
func.func @order(%x: index, %n: index, %y: index) {
  %x_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %x_tile = ktdp.construct_access_tile %x_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %x_value = ktdp.load %x_tile : <4xindex> -> tensor<4xf32>
  %n_view = ktdp.construct_memory_view %n, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
  %n_tile = ktdp.construct_access_tile %n_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<4xi64> -> !ktdp.access_tile<4xindex>
  %n_value = ktdp.load %n_tile : <4xindex> -> tensor<4xi64>
  %v, %i = ktir.sort %x_value, %n_value dimension = 0 {descending, stable} : tensor<4xf32>, tensor<4xi64> -> tensor<4xf32>, tensor<4xi64>
  %y_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
  %y_tile = ktdp.construct_access_tile %y_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<4xi64> -> !ktdp.access_tile<4xindex>
  ktdp.store %i, %y_tile : tensor<4xi64>, <4xindex>
  return
}
