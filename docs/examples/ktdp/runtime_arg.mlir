func.func private @args(!ktdp.runtime_arg<index, granularity=64, upperbound=4096>, !ktdp.runtime_arg<f32>)

// -----

// expected-error@+1 {{runtime_arg granularity must be positive}}
func.func private @f(!ktdp.runtime_arg<index, granularity=0>)
