// C048: a masked view has a dynamic size
// level: L1
// expected: error: can only be masked with a dynamic size
// tags: f16, masks, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, masked, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
