func.func private @f(tensor<1x57x64xf16> {ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [57, 64], strides = [64, 1]>})

// -----

// expected-error@+1 {{host view numbers must be non-negative}}
func.func private @f() attributes {a = #ktir.host_view<arg = 0, offset = -1, size = [4], strides = [1]>}
