// C123: a store beyond a static view
// level: L2
// expected: error: coordinates 4 to 5 in dim 0
// tags: bounds, f16

#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
func.func @main(%x: index, %i: index) {
  %at0 = arith.constant 0 : index
  %a_view = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #box2, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<2xf16> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %a_tile : <2xindex> -> tensor<2xf16>
  %x_out_view = ktdp.construct_memory_view %x, sizes: [5], strides: [1]
      {coordinate_set = #box5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  %x_out_tile = ktdp.construct_access_tile %x_out_view[%i]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<5xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %a, %x_out_tile : tensor<2xf16>, <2xindex>
  return
}
