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

// -----

func.func @f(%x: tensor<4xi64>) {
  // expected-error@+1 {{'ktir.materialize' op expects memory of the tensor's shape and element type, but got 'memref<4xi32>' for 'tensor<4xi64>'}}
  %m = ktir.materialize %x : tensor<4xi64> -> memref<4xi32>
  return
}

// -----

func.func @f(%x: tensor<4xi64>, %t: !ktdp.access_tile<5xindex>) {
  // expected-error@+1 {{'ktir.scatter_add' op expects a tile of the value's shape, but got '!ktdp.access_tile<5xindex>' for 'tensor<4xi64>'}}
  ktir.scatter_add %x, %t : tensor<4xi64>, !ktdp.access_tile<5xindex>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ktir.scan' op expects a dimension of 'tensor<4xf32>', but got 1}}
  %s = ktir.scan %x dimension = 1 : tensor<4xf32> -> tensor<4xf32> {
  ^bb0(%a: f32, %b: f32):
    ktir.yield %a : f32
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ktir.scan' op expects a combiner of one block with arguments of types (f32, f32)}}
  %s = ktir.scan %x dimension = 0 : tensor<4xf32> -> tensor<4xf32> {
  ^bb0(%a: f32):
    ktir.yield %a : f32
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %i: i32) {
  %s = ktir.scan %x dimension = 0 : tensor<4xf32> -> tensor<4xf32> {
  ^bb0(%a: f32, %b: f32):
    // expected-error@+1 {{'ktir.yield' op expects scalars of types (f32), but got (i32)}}
    ktir.yield %i : i32
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error@+1 {{'ktir.sort' op expects operands of one shape, but got (tensor<4xf32>, tensor<5xf32>)}}
  %s, %t = ktir.sort %x, %y dimension = 0 : tensor<4xf32>, tensor<5xf32> -> tensor<4xf32>, tensor<5xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{'ktir.sort' op expects results of its operands' types (tensor<4xf32>), but got (tensor<4xf16>)}}
  %s = ktir.sort %x dimension = 0 : tensor<4xf32> -> tensor<4xf16>
  return
}

// -----

func.func @f(%x: tensor<192x4xf16>) {
  // expected-error@+1 {{'ktir.pair_bytes' op expects whole blocks of 128 numbers along dimension 0 and half as many pairs, but got 'tensor<96x4xvector<2xi8>>' for 'tensor<192x4xf16>'}}
  %p = ktir.pair_bytes %x dimension = 0 : tensor<192x4xf16> -> tensor<96x4xvector<2xi8>>
  return
}

// -----

func.func @f(%x: tensor<128x4xf16>) {
  // expected-error@+1 {{'ktir.pair_bytes' op expects a dimension of 'tensor<128x4xf16>', but got 2}}
  %p = ktir.pair_bytes %x dimension = 2 : tensor<128x4xf16> -> tensor<64x4xvector<2xi8>>
  return
}

// -----

func.func @f(%x: tensor<128x4xi32>) {
  // expected-error@+1 {{'ktir.pair_bytes' op expects f16, bf16 or f32 as pairs of numbers of one byte, but got 'tensor<64x4xvector<2xi8>>' for 'tensor<128x4xi32>'}}
  %p = ktir.pair_bytes %x dimension = 0 : tensor<128x4xi32> -> tensor<64x4xvector<2xi8>>
  return
}
