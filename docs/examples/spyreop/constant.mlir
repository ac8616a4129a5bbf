func.func @f() {
  %c = spyreop.constant 1.500000e+00 : f16
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{failed to verify that all of {value, result} have same type}}
  %c = "spyreop.constant"() {value = 1.0 : f32} : () -> f16
  return
}
