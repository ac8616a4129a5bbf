#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects size 4 in dim 0 of the result, but got 'memref<5xf16>'}}
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  return
}
