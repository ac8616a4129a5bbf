// C019: a memory space is global or ct_local
// level: L0
// expected: error: expected one of: global, ct_local
// tags: f16, rejections, text

func.func private @f(memref<4xf16, #ktdp.memory_space<HBM>>)
