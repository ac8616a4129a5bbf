// C050: a view has a coordinate set
// level: L1
// expected: error: coordinate_set
// tags: f16, rejections
// mode: strict

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
