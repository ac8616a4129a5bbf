// C330: the coordinate set has the extents of the view
// level: L1
// expected: error: coordinate set of extents
// tags: f16, rejections
// mode: strict

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
