// C021: brackets are balanced
// level: L0
// expected: error: unbalanced brackets
// tags: f16, rejections, text

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = affine_set<(d0 : (d0 >= 0>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
