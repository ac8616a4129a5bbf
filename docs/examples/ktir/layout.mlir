// 200 x 130 elements in sticks of 64: 3 sticks per row, the last one with 62 lanes of padding, which holds zeros.
#layout = #ktir.layout<size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, pad = zero>
func.func private @f(tensor<3x200x64xf16, #layout>)

// -----

// expected-error@+1 {{layout expects one stride per device dim, but got [1] for [3, 64]}}
func.func private @f() attributes {a = #ktir.layout<size = [4], device = [3, 64], strides = [1], dtype = f16>}
