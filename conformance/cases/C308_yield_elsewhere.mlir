// C308: a yield stands in its operation
// level: L1
// expected: error: expects parent op
// tags: f16, rejections

func.func @f(%x: tensor<4xf16>) {
  ktdp.yield_partial %x : tensor<4xf16>
}
