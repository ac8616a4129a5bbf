// C243: a runtime argument is a number
// level: L1
// expected: error: underlying type

func.func private @f(!ktdp.runtime_arg<tensor<4xf16>>)
