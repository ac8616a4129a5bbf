// C240: runtime arguments and what is taken from them
// level: L1
// expected: ok
// tags: runtime-args

func.func @f(%a: !ktdp.runtime_arg<index, granularity=64, upperbound=4096>, %b: !ktdp.runtime_arg<f32>, %c: !ktdp.runtime_arg<i32, upperbound=7, granularity=2>) {
  %0 = ktdp.runtime_arg_extract value from %a : <index, granularity=64, upperbound=4096> -> index
  %1 = ktdp.runtime_arg_extract granularity from %a : <index, granularity=64, upperbound=4096> -> index
  %2 = ktdp.runtime_arg_extract upperbound from %c : !ktdp.runtime_arg<i32, granularity=2, upperbound=7> -> index
  %3 = ktdp.runtime_arg_extract value from %b : <f32> -> f32
  return
}
