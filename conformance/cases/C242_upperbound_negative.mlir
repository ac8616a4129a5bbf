// C242: an upper bound is positive
// level: L1
// expected: error: upperbound must be positive
// tags: rejections, runtime-args

func.func private @f(!ktdp.runtime_arg<index, upperbound=-1>)
