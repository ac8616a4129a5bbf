// C435: each tile stores a row of its own by number
// level: L3
// expected: values
// tags: affine-subscripts, f32, grid, i32, indirect, tile-ids

#box4x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @main(%r: index, %x: index, %y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%t, %k0]
      {access_tile_order = #id2, access_tile_set = #box1x2} : memref<4x2xf32> -> !ktdp.access_tile<1x2xindex>
  %v = ktdp.load %v_tile : <1x2xindex> -> tensor<1x2xf32>
  %rows_view = ktdp.construct_memory_view %r, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xi32>
  %table_view = ktdp.construct_memory_view %y, sizes: [4, 2], strides: [2, 1]
      {coordinate_set = #box4x2, memory_space = #ktdp.memory_space<global>} : memref<4x2xf32>
  %to = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %table_view[ind(%rows_view[%t + %i]), (%j)]
      {variables_space_order = #id2, variables_space_set = #box1x2} : memref<4x2xf32>, memref<4xi32> -> !ktdp.access_tile<1x2xindex>
  ktdp.store %v, %to : tensor<1x2xf32>, <1x2xindex>
  return
}
