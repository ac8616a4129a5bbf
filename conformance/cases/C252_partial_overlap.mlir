// C252: partitions overlap in part
// level: L1
// expected: error: disjoint
// tags: distributed, f16, rejections

#own_p = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#own_q = affine_set<(d0) : (d0 - 3 >= 0, -d0 + 6 >= 0)>
func.func @f(%x: index, %y: index) {
  %p = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #own_p, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %q = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #own_q, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<4xf16>, memref<4xf16>) : memref<7xf16>
  return
}
