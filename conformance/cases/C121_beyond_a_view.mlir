// C121: a tile beyond a static view
// level: L2
// expected: error: coordinates 2 to 5 in dim 0 of a view of size 5
// tags: bounds, f16

#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @main(%x: index, %i: index) {
  %a_view = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%i]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<5xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %a_tile : <4xindex> -> tensor<4xf16>
  return
}
