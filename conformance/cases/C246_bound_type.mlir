// C246: bounds are of type index
// level: L1
// expected: error: must be index
// tags: rejections, runtime-args

func.func @f(%a: !ktdp.runtime_arg<i32, upperbound=4>) {
  %0 = ktdp.runtime_arg_extract upperbound from %a : <i32, upperbound=4> -> i32
  return
}
