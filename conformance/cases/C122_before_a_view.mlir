// C122: a tile before a static view
// level: L2
// expected: error: coordinates -1 to 0 in dim 0
// tags: affine-subscripts, bounds, f16

#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @main(%x: index, %i: index) {
  %a_view = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%i - 1]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<5xf16> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %a_tile : <2xindex> -> tensor<2xf16>
  return
}
