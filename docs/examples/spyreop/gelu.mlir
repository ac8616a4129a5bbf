func.func @f(%x: f16) {
  %y = spyreop.gelu %x : f16
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{operand #0 must be 16-bit float or IBM df16 float, but got 'f32'}}
  %y = spyreop.gelu %x : f32
  return
}
