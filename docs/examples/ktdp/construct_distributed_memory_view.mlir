#top = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#bottom = affine_set<(d0, d1) : (d0 - 2 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @rows(%x: index, %y: index) {
  %p = ktdp.construct_memory_view %x, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #top, memory_space = #ktdp.memory_space<global>} : memref<2x4xf16>
  %q = ktdp.construct_memory_view %y, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #bottom, memory_space = #ktdp.memory_space<global>} : memref<2x4xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<2x4xf16>, memref<2x4xf16>) : memref<4x4xf16>
  %t = ktdp.construct_access_tile %d[1, 0]
      {access_tile_order = #id2, access_tile_set = #top} : memref<4x4xf16> -> !ktdp.access_tile<2x4xindex>
  // A row of each part.
  %a = ktdp.load %t : <2x4xindex> -> tensor<2x4xf16>
  return
}
