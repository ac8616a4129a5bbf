// C084: a load does not convert
// level: L1
// expected: error: element type 'f16'
// tags: f16, f32, literal-subscripts, rejections

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %t = ktdp.construct_access_tile %v[0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %t : <4xindex> -> tensor<4xf32>
  return
}
