// Named matmuls, transposes and broadcasts become generics whose bodies have the op's location; fills stay, and what nobody reads goes.
// RUN: ktir-opt %s --ktir-generalize --mlir-print-debuginfo | FileCheck %s

// CHECK: #[[L:.*]] = loc("bmm")
// CHECK-LABEL: func.func @f(
module attributes {ktir.level = "logical"} {
  func.func @f(%a: tensor<3x16x32xf16>, %b: tensor<3x24x32xf16>, %w: tensor<32x8xf16>) -> (tensor<3x16x24xf32>, tensor<8x5x32xf16>) {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<3x16x24xf32>
    // CHECK: linalg.fill
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<3x16x24xf32>) -> tensor<3x16x24xf32>
    // CHECK: linalg.generic {indexing_maps = [#[[A:.*]], #[[B:.*]], #[[C:.*]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %arg1 :
    // CHECK: arith.extf {{.*}} loc(#[[L]])
    // CHECK: arith.extf {{.*}} loc(#[[L]])
    // CHECK: arith.mulf {{.*}} loc(#[[L]])
    // CHECK: arith.addf {{.*}} loc(#[[L]])
    %r = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
        ins(%a, %b : tensor<3x16x32xf16>, tensor<3x24x32xf16>) outs(%init : tensor<3x16x24xf32>) -> tensor<3x16x24xf32> loc("bmm")
    %t = tensor.empty() : tensor<8x32xf16>
    // CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%arg2 : tensor<32x8xf16>)
    %p = linalg.transpose ins(%w : tensor<32x8xf16>) outs(%t : tensor<8x32xf16>) permutation = [1, 0]
    %u = tensor.empty() : tensor<8x5x32xf16>
    // CHECK: linalg.generic {{.*}} ins(%[[T]] : tensor<8x32xf16>) outs({{.*}} : tensor<8x5x32xf16>)
    %q = linalg.broadcast ins(%p : tensor<8x32xf16>) outs(%u : tensor<8x5x32xf16>) dimensions = [1]
    // CHECK-NOT: math.exp
    %v = math.exp %r : tensor<3x16x24xf32>
    return %r, %q : tensor<3x16x24xf32>, tensor<8x5x32xf16>
  }
}
