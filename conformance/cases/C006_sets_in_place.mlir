// C006: sets and maps in place, not normalised, with names of their own
// level: L0
// expected: ok
// tags: f16, literal-subscripts, sets, text

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [8, 4], strides: [4, 1]
      {coordinate_set = affine_set<(row, col) : (0 <= row, row <= 7, col >= 0, 3 - col >= 0)>,
       memory_space = #ktdp.memory_space<global>} : memref<8x4xf16>
  %t = ktdp.construct_access_tile %v[0, 0] {access_tile_set = affine_set<(r, c) : (r == 0, 0 <= c, 3 >= c)>,
      access_tile_order = affine_map<(r, c) -> (r, c)>} : memref<8x4xf16> -> !ktdp.access_tile<1x4xindex>
  return
}
