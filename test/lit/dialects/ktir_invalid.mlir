// RUN: ktir-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{layout expects one stride per device dim, but got [1] for [3, 64]}}
func.func private @f() attributes {a = #ktir.layout<size = [4], device = [3, 64], strides = [1], dtype = f16>}

// -----

// expected-error@+1 {{layout sizes must be non-negative}}
func.func private @f() attributes {a = #ktir.layout<size = [-4], device = [64], strides = [1], dtype = f16>}

// -----

// expected-error@+1 {{expected type}}
func.func private @f() attributes {a = #ktir.layout<size = [4], device = [64], strides = [1], dtype = 16>}

// -----

// expected-error@+1 {{host view expects one stride per dim, but got [] for [4]}}
func.func private @f() attributes {a = #ktir.host_view<arg = 0, offset = 0, size = [4], strides = []>}

// -----

// expected-error@+1 {{host view numbers must be non-negative}}
func.func private @f() attributes {a = #ktir.host_view<arg = 0, offset = -1, size = [4], strides = [1]>}

// -----

// expected-error@+1 {{work expects one tile extent per split, but got [1] for [1, 2]}}
func.func private @f() attributes {a = #ktir.work<splits = [1, 2], tile = [1]>}

// -----

// expected-error@+1 {{work numbers must be positive}}
func.func private @f() attributes {a = #ktir.work<splits = [0], tile = [1]>}

// -----

// expected-error@+1 {{expected one of: PT, SFP}}
func.func private @f() attributes {a = #ktir.acc<LX>}

// -----

// expected-error@+1 {{rotate needs nbuf > 0 and stride >= 0}}
func.func private @f() attributes {a = #ktir.rotate<nbuf = 0, stride = 4>}
