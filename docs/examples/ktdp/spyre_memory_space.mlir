func.func private @old(memref<4xf16, #ktdp.spyre_memory_space<HBM>>, memref<4xf16, #ktdp.spyre_memory_space<LX, core = 3>>)

// -----

// expected-error@+1 {{core affinity is only valid for LX or L0 memory spaces}}
func.func private @f(memref<4xf16, #ktdp.spyre_memory_space<HBM, core = 3>>)
