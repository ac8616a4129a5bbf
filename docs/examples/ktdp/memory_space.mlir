func.func private @spaces(memref<4xf16, #ktdp.memory_space<global>>, memref<4xf16, #ktdp.memory_space<ct_local>>,
  memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 7>>)

// -----

// expected-error@+1 {{ct_id is only legal for memory space 'ct_local'}}
func.func private @f(memref<4xf16, #ktdp.memory_space<global, ct_id = 0>>)
