func.func @f(%a: !ktdp.runtime_arg<i32, granularity=64>) {
  %n = ktdp.runtime_arg_extract value from %a : <i32, granularity=64> -> i32
  %g = ktdp.runtime_arg_extract granularity from %a : <i32, granularity=64> -> index
  // expected-error@+1 {{cannot extract upperbound from runtime_arg that doesn't have one}}
  %u = ktdp.runtime_arg_extract upperbound from %a : <i32, granularity=64> -> index
  return
}
