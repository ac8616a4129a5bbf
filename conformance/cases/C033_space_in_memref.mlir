// C033: the memref type may repeat the memory space
// level: L1
// expected: ok
// tags: f16, scratchpad

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16, #ktdp.memory_space<ct_local>>
  return
}
