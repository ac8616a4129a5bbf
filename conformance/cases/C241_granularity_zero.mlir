// C241: a granularity is positive
// level: L1
// expected: error: granularity must be positive
// tags: rejections, runtime-args

func.func private @f(!ktdp.runtime_arg<index, granularity=0>)
