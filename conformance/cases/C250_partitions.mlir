// C250: two halves, and two replicas
// level: L1
// expected: ok
// tags: distributed, f16

#own_p = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 3 >= 0)>
#own_q = affine_set<(d0, d1) : (d0 - 2 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
func.func @f(%x: index, %y: index) {
  %p = ktdp.construct_memory_view %x, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #own_p, memory_space = #ktdp.memory_space<global>} : memref<2x4xf16>
  %q = ktdp.construct_memory_view %y, sizes: [2, 4], strides: [4, 1]
      {coordinate_set = #own_q, memory_space = #ktdp.memory_space<global>} : memref<2x4xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<2x4xf16>, memref<2x4xf16>) : memref<4x4xf16>
  return
}
