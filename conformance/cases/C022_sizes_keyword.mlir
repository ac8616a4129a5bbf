// C022: the keyword of the sizes is not left out
// level: L0
// expected: error: expected 'sizes'
// tags: f16, rejections, text

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, [4], strides: [1] {} : memref<4xf16>
  return
}
