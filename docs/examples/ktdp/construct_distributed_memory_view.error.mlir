#low = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#high = affine_set<(d0) : (d0 - 3 >= 0, -d0 + 6 >= 0)>
func.func @f(%x: index, %y: index) {
  %p = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #low, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %q = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #high, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  // expected-error@+1 {{expects partitions that are disjoint or replicas}}
  %d = ktdp.construct_distributed_memory_view(%p, %q : memref<4xf16>, memref<4xf16>) : memref<7xf16>
  return
}
