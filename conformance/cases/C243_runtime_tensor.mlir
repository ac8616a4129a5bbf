// C243: a runtime argument is a number
// level: L1
// expected: error: underlying type
// tags: f16, rejections, runtime-args

func.func private @f(!ktdp.runtime_arg<tensor<4xf16>>)
