// RUN: ktir-opt %s --split-input-file --verify-diagnostics

// Lists behind which MLIR's own parser does not survive: dims that are no integers in brackets, kinds of loops that are no strings.

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'dimensions ='}}
  %t = linalg.reduce { arith.addf } ins(%a : tensor<4x8xf32>) outs(%b : tensor<4xf32>) dimensions =>[0]
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'dimensions ='}}
  %t = linalg.reduce { arith.addf } ins(%a : tensor<4x8xf32>) outs(%b : tensor<4xf32>) dimensions = 1
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'dimensions ='}}
  %t = linalg.reduce { arith.addf } ins(%a : tensor<4x8xf32>) outs(%b : tensor<4xf32>) dimensions = [99999999999999999999]
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'dimensions ='}}
  %t = linalg.broadcast ins(%b : tensor<4xf32>) outs(%a : tensor<4x8xf32>) dimensions = [1,]
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'dimensions ='}}
  %t = linalg.broadcast dimensions = [1 0]
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'permutation ='}}
  %t = linalg.transpose ins(%a : tensor<4x8xf32>) outs(%b : tensor<8x4xf32>) permutation = // [
 [0x]
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{expected integers in brackets behind 'permutation ='}}
  %t = linalg.transpose permutation = array<i64: 1, 0>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error@+1 {{expected strings as iterator types}}
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [2]} outs(%a : tensor<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return
}

// -----

func.func @f(%a: tensor<4xf32>) {
  // expected-error@+1 {{expected strings as iterator types}}
  %t = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [#linalg.iterator_type<parallel>]} outs(%a : tensor<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return
}

// -----

// expected-error@+1 {{expected strings as iterator types}}
#kinds = {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [#linalg.iterator_type<parallel>]}
func.func @f(%a: tensor<4xf32>) {
  %t = linalg.generic #kinds outs(%a : tensor<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  } -> tensor<4xf32>
  return
}

// -----

// What is like them and no such list is none.
#dimensions = affine_map<(d0) -> (d0)>
#kind = "parallel"
func.func @dimensions(%permutation: tensor<4xf32>, %a: tensor<4x8xf32>) -> tensor<4xf32> attributes {dimensions = 3, other = 1, permutation = "x"} {
  %dimensions = linalg.reduce { arith.addf } ins(%a : tensor<4x8xf32>) outs(%permutation : tensor<4xf32>) dimensions // [
    = [ // ]
      1 ]
  %u = linalg.generic {indexing_maps = [#dimensions], iterator_types = [#kind]} outs(%dimensions : tensor<4xf32>) {
  ^bb0(%x: f32):
    linalg.yield %x : f32
  } -> tensor<4xf32>
  %v = "linalg.generic"(%u) <{indexing_maps = [#dimensions], iterator_types = [#linalg.iterator_type<parallel>],
    operandSegmentSizes = array<i32: 0, 1>}> ({
  ^bb0(%x: f32):
    linalg.yield %x : f32
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %v : tensor<4xf32>
}
