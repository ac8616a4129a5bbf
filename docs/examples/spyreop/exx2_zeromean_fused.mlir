func.func @f(%x: f16) {
  %p = spyreop.exx2_zeromean_fused %x : f16 -> !spyreop.fp16_fused
  return
}
