// C009: two results of one operation are two values in index expressions
// level: L0
// expected: ok
// tags: f16, grid, grid-of-several-dims, text, tile-ids

#box64x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @f(%x: index) attributes {grid = [4, 4]} {
  %g:2 = ktdp.get_compute_tile_id : index, index
  %v = ktdp.construct_memory_view %x, sizes: [64, 64], strides: [64, 1]
      {coordinate_set = #box64x64, memory_space = #ktdp.memory_space<global>} : memref<64x64xf16>
  %t = ktdp.construct_access_tile %v[%g#0, %g#1]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  return
}
