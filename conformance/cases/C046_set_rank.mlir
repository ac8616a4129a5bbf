// C046: the coordinate set has the dims of the view
// level: L1
// expected: error: coordinate set
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0, d1) : (d0 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
