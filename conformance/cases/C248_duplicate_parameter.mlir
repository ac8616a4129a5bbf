// C248: a parameter is given once
// level: L0
// expected: error: duplicate
// tags: rejections, runtime-args, text

func.func private @f(!ktdp.runtime_arg<index, granularity=2, granularity=4>)
