// C244: the value has the underlying type
// level: L1
// expected: error: must match runtime_arg underlying type
// tags: rank-0, rejections, runtime-args

func.func @f(%a: !ktdp.runtime_arg<index>) {
  %0 = ktdp.runtime_arg_extract value from %a : <index> -> i32
  return
}
