// C045: sizes are not negative
// level: L1
// expected: error: negative
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [-4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  return
}
