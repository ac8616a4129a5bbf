// C324: a fused scale takes a pair
// level: L1
// expected: error: must be
// tags: f16, rejections, spyreop

func.func @f(%x: f16) {
  %c = spyreop.layernormscale_fused %x : f16 -> f16
  return
}
