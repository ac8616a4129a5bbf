// given  %x: f16 fill(6) 0
// result %x: f16 [0, 0, 1, 1, 0, 0]
#box6 = affine_set<(d0) : (d0 >= 0, -d0 + 5 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box2 = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
func.func @mark(%x: index) {
  %v = arith.constant dense<1.0> : tensor<2xf16>
  %x_view = ktdp.construct_memory_view %x, sizes: [6], strides: [1]
      {coordinate_set = #box6, memory_space = #ktdp.memory_space<global>} : memref<6xf16>
  %x_tile = ktdp.construct_access_tile %x_view[2]
      {access_tile_order = #id1, access_tile_set = #box2} : memref<6xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %v, %x_tile : tensor<2xf16>, <2xindex>
  return
}
