// C049: a view names its memory space
// level: L1
// expected: error: requires attribute 'memory_space'
// tags: f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0)>} : memref<4xf16>
  return
}
