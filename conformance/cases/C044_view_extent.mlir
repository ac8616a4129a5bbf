// C044: static sizes are the extents of the result
// level: L1
// expected: error: size 4
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  return
}
