// RUN: ktir-opt %s --split-input-file --verify-diagnostics

// MLIR's own parser does not survive these, so they are refused before it sees them; comments and strings are not.

func.func @pretty(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{'linalg.transpose' op expects a permutation of at least one dim}}
  %t = linalg.transpose ins(%a : tensor<f32>) outs(%b : tensor<f32>) permutation = []
  return %t : tensor<f32>
}

// -----

func.func @generic(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{'linalg.transpose' op expects a permutation of at least one dim}}
  %t = "linalg.transpose"(%a, %b) <{permutation = array<i64>}> ({
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  }) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %t : tensor<f32>
}

// -----

// linalg.transpose permutation = []
func.func @others(%a: tensor<2x3xf32>, %b: tensor<3x2xf32>, %c: tensor<f32>, %d: tensor<f32>) -> tensor<f32> {
  %t = linalg.transpose ins(%a : tensor<2x3xf32>) outs(%b : tensor<3x2xf32>) permutation = [1, 0] {note = "permutation = []"}
  %u = linalg.broadcast ins(%c : tensor<f32>) outs(%d : tensor<f32>) dimensions = []
  return %u : tensor<f32>
}
