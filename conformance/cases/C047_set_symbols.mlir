// C047: the coordinate set has a symbol per dynamic size, or none
// level: L1
// expected: error: symbol
// tags: dynamic-sizes, f16, rejections

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [%x], strides: [1]
      {coordinate_set = affine_set<(d0)[s0, s1] : (d0 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  return
}
