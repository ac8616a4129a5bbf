// C030: all memory spaces
// level: L1
// expected: ok
// tags: f16, other-scratchpads, scratchpad

func.func private @f(memref<4xf16, #ktdp.memory_space<global>>, memref<4xf16, #ktdp.memory_space<ct_local>>,
  memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 0>>, memref<4xf16, #ktdp.memory_space<ct_local, ct_id = 31>>)
