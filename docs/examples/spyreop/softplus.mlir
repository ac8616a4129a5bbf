func.func @f(%x: f16) {
  %y = spyreop.softplus %x beta 1.000000e+00 threshold 2.000000e+01 : f16
  return
}

// -----

func.func @f(%x: f16) {
  // expected-error@+1 {{32-bit float attribute which is non-zero}}
  %y = spyreop.softplus %x beta 0.0 threshold 20.0 : f16
  return
}
