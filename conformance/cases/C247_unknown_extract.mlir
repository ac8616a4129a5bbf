// C247: value, granularity or upperbound
// level: L1
// expected: error: expected
// tags: rank-0, rejections, runtime-args

func.func @f(%a: !ktdp.runtime_arg<index>) {
  %0 = ktdp.runtime_arg_extract maximum from %a : <index> -> index
  return
}
