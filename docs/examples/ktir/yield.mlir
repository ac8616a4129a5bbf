// given  %x: f32 [1, 5, 2, 7, 3]
// given  %y: i64 fill(5) 0
// result %y: i64 [0, 1, 1, 3, 3]
// The largest value so far and where it was: two values at once.
func.func @running_maximum(%x: index, %y: index) {
  %x_view = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
  %x_tile = ktdp.construct_access_tile %x_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>} : memref<5xf32> -> !ktdp.access_tile<5xindex>
  %x_value = ktdp.load %x_tile : <5xindex> -> tensor<5xf32>
  %places = arith.constant dense<[0, 1, 2, 3, 4]> : tensor<5xi64>
  %m, %i = ktir.scan %x_value, %places dimension = 0 : tensor<5xf32>, tensor<5xi64> -> tensor<5xf32>, tensor<5xi64> {
  ^bb0(%a: f32, %p: i64, %b: f32, %q: i64):
    %keep = arith.cmpf oge, %a, %b : f32
    %v = arith.select %keep, %a, %b : f32
    %w = arith.select %keep, %p, %q : i64
    ktir.yield %v, %w : f32, i64
  }
  %y_view = ktdp.construct_memory_view %y, sizes: [5], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xi64>
  %y_tile = ktdp.construct_access_tile %y_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>} : memref<5xi64> -> !ktdp.access_tile<5xindex>
  ktdp.store %i, %y_tile : tensor<5xi64>, <5xindex>
  return
}
