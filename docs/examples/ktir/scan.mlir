// given  %x: f32 [1, 2, 3, 4, 5, 6]
// given  %y: f32 fill(2, 3) 0
// result %y: f32 [[1, 3, 6], [4, 9, 15]]
func.func @cumsum(%x: index, %y: index) {
  %x_view = ktdp.construct_memory_view %x, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x3xf32>
  %x_tile = ktdp.construct_access_tile %x_view[0, 0]
      {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>} : memref<2x3xf32> -> !ktdp.access_tile<2x3xindex>
  %x_value = ktdp.load %x_tile : <2x3xindex> -> tensor<2x3xf32>
  %s = ktir.scan %x_value dimension = 1 : tensor<2x3xf32> -> tensor<2x3xf32> {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %a, %b : f32
    ktir.yield %c : f32
  }
  %y_view = ktdp.construct_memory_view %y, sizes: [2, 3], strides: [3, 1]
      {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2x3xf32>
  %y_tile = ktdp.construct_access_tile %y_view[0, 0]
      {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0)>} : memref<2x3xf32> -> !ktdp.access_tile<2x3xindex>
  ktdp.store %s, %y_tile : tensor<2x3xf32>, <2x3xindex>
  return
}
