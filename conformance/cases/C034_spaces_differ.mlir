// C034: the memory spaces of attribute and type agree
// level: L1
// expected: error: expects the memory space of its result type to be the one in its attribute
// tags: f16, rejections, scratchpad

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16, #ktdp.memory_space<ct_local>>
  return
}
