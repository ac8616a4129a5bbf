func.func @f() {
  ktdp.a
}
// -----

func.func @f() {
  // expected-warning@+1 {{custom op 'ktdp.b' is unknown}}
  ktdp.b
}

// -----

func.func @f() {
  // expected-error@+1 {{nothing of the kind}}
  return
}

// -----


func.func @f(%t: !ktdp.access_tile<4xindex>) {
  %0 = ktdp.load %t : <8xindex> -> tensor<8xf16>
}
