// C245: what the type does not promise cannot be taken
// level: L1
// expected: error: cannot extract granularity
// tags: rank-0, rejections, runtime-args

func.func @f(%a: !ktdp.runtime_arg<index>) {
  %0 = ktdp.runtime_arg_extract granularity from %a : <index> -> index
  return
}
