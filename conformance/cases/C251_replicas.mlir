// C251: exact replicas may overlap
// level: L1
// expected: ok
// tags: distributed, f16, other-scratchpads, scratchpad

#own_p = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index, %y: index) {
  %p = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #own_p, memory_space = #ktdp.memory_space<ct_local, ct_id = 0>} : memref<4xf16>
  %q = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #own_p, memory_space = #ktdp.memory_space<ct_local, ct_id = 1>} : memref<4xf16>
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<4xf16>, memref<4xf16>) : memref<4xf16>
  return
}
