// C323: the pair is that of the operand's type
// level: L1
// expected: error: incompatible
// tags: f16, rejections, spyreop

func.func @f(%x: f16) {
  %p = spyreop.exx2_fused %x : f16 -> !spyreop.fp32_fused
  return
}
