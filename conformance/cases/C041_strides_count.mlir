// C041: as many strides as sizes
// level: L1
// expected: error: strides
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1, 1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
