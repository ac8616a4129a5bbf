// C031: global memory belongs to no tile
// level: L1
// expected: error: ct_id is only legal for memory space 'ct_local'
// tags: f16, other-scratchpads, rejections

func.func private @f(memref<4xf16, #ktdp.memory_space<global, ct_id = 0>>)
