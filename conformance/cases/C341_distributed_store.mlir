// C341: a store over two partitions
// level: L2
// expected: values
// tags: distributed, f16

#top = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#bottom = affine_set<(d0, d1) : (d0 - 2 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#box3x2 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 1 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: index, %z: index, %y: index) {
  %at0 = arith.constant 0 : index
  %at1 = arith.constant 1 : index
  %p = ktdp.construct_memory_view %x, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #top, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %q = ktdp.construct_memory_view %z, sizes: [2, 2], strides: [2, 1]
      {coordinate_set = #bottom, memory_space = #ktdp.memory_space<global>} : memref<2x2xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<2x2xf16>, memref<2x2xf16>) : memref<4x2xf16>
  %a_view = ktdp.construct_memory_view %y, sizes: [3, 2], strides: [2, 1]
      {coordinate_set = #box3x2, memory_space = #ktdp.memory_space<global>} : memref<3x2xf16>
  %a_tile = ktdp.construct_access_tile %a_view[%at0, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<3x2xf16> -> !ktdp.access_tile<3x2xindex>
  %a = ktdp.load %a_tile : <3x2xindex> -> tensor<3x2xf16>
  %t = ktdp.construct_access_tile %d[%at1, %at0]
      {access_tile_order = #id2, access_tile_set = #box3x2} : memref<4x2xf16> -> !ktdp.access_tile<3x2xindex>
  ktdp.store %a, %t : tensor<3x2xf16>, <3x2xindex>
  return
}
