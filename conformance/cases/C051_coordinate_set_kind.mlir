// C051: a coordinate set is an integer set
// level: L1
// expected: error: must be an integer set
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = 4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
