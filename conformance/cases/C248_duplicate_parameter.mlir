// C248: a parameter is given once
// level: L0
// expected: error: duplicate

func.func private @f(!ktdp.runtime_arg<index, granularity=2, granularity=4>)
