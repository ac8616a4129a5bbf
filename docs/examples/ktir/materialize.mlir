// given  %x: f32 [10, 20, 30, 40]
// given  %i: i64 [3, 0, 1]
// given  %y: f32 fill(3) 0
// result %y: f32 [40, 20, 40]
// The positions are computed, so they become memory that `ind()` reads: y[k] = x[(i[k] + k) mod 4].
func.func @gather(%x: index, %i: index, %y: index) {
  %i_view = ktdp.construct_memory_view %i, sizes: [3], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3xi64>
  %i_tile = ktdp.construct_access_tile %i_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>} : memref<3xi64> -> !ktdp.access_tile<3xindex>
  %i_value = ktdp.load %i_tile : <3xindex> -> tensor<3xi64>
  %empty = tensor.empty() : tensor<3xi64>
  %positions = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%i_value : tensor<3xi64>) outs(%empty : tensor<3xi64>) {
  ^bb0(%a: i64, %out: i64):
    %k = linalg.index 0 : index
    %b = arith.index_cast %k : index to i64
    %c = arith.addi %a, %b : i64
    %n = arith.constant 4 : i64
    %d = arith.remsi %c, %n : i64
    linalg.yield %d : i64
  } -> tensor<3xi64>
  %m = ktir.materialize %positions : tensor<3xi64> -> memref<3xi64>
  %x_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%k) %x_view[ind(%m[%k])]
      {variables_space_order = affine_map<(d0) -> (d0)>, variables_space_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>}
      : memref<4xf32>, memref<3xi64> -> !ktdp.access_tile<3xindex>
  %v = ktdp.load %t : <3xindex> -> tensor<3xf32>
  %y_view = ktdp.construct_memory_view %y, sizes: [3], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3xf32>
  %y_tile = ktdp.construct_access_tile %y_view[0]
      {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>} : memref<3xf32> -> !ktdp.access_tile<3xindex>
  ktdp.store %v, %y_tile : tensor<3xf32>, <3xindex>
  return
}
