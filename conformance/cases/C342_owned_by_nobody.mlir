// C342: a coordinate that no partition owns
// level: L2
// expected: error: no partition
// tags: distributed, f16

#low = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#high = affine_set<(d0) : (d0 - 4 >= 0, -d0 + 5 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %z: index, %i: index) {
  %p = ktdp.construct_memory_view %x, sizes: [2], strides: [1]
      {coordinate_set = #low, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %q = ktdp.construct_memory_view %z, sizes: [2], strides: [1]
      {coordinate_set = #high, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<2xf16>, memref<2xf16>) : memref<6xf16>
  %t = ktdp.construct_access_tile %d[%i]
      {access_tile_order = #id1, access_tile_set = #low} : memref<6xf16> -> !ktdp.access_tile<2xindex>
  %a = ktdp.load %t : <2xindex> -> tensor<2xf16>
  return
}
