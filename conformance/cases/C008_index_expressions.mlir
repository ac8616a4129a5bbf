// C008: all operators of index expressions
// level: L0
// expected: ok
// tags: affine-subscripts, f16, literal-subscripts, text

#box64x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box1x1 = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 >= 0)>
func.func @f(%x: index, %i: index, %j: index) {
  %v = ktdp.construct_memory_view %x, sizes: [64, 64], strides: [64, 1]
      {coordinate_set = #box64x64, memory_space = #ktdp.memory_space<global>} : memref<64x64xf16>
  %t0 = ktdp.construct_access_tile %v[%i * 2 + 1, %j - 3]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  %t1 = ktdp.construct_access_tile %v[%i floordiv 2, %j ceildiv 4]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  %t2 = ktdp.construct_access_tile %v[%i mod 8, -%j + 63]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  %t3 = ktdp.construct_access_tile %v[(%i + %j) * 4, 7]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  %t4 = ktdp.construct_access_tile %v[%i + %i * 2, %i]
      {access_tile_order = #id2, access_tile_set = #box1x1} : memref<64x64xf16> -> !ktdp.access_tile<1x1xindex>
  return
}
