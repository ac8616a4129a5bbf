// C010: line breaks and comments between tokens
// level: L0
// expected: ok
// tags: f16, literal-subscripts, text

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view // where
      %x, sizes:
      [4], // how much
      strides: [1] {coordinate_set = #box, memory_space =
      #ktdp.memory_space<global>} :
      memref<4xf16> %t = ktdp.construct_access_tile %v[0] {access_tile_set = #box, access_tile_order = affine_map<(d0) -> (d0)>} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  return
}
