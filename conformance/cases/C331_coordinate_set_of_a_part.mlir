// C331: a coordinate set may be the box of a part
// level: L1
// expected: ok
// tags: f16

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = affine_set<(d0) : (d0 - 64 >= 0, -d0 + 67 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}
