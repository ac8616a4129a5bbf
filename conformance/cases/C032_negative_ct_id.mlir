// C032: a ct_id is not negative
// level: L1
// expected: error: ct_id must be non-negative
// tags: f16, other-scratchpads, rejections, scratchpad

func.func private @f(memref<4xf16, #ktdp.memory_space<ct_local, ct_id = -5>>)
