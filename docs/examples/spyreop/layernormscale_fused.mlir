func.func @f(%p: !spyreop.fp16_fused) {
  %c = spyreop.layernormscale_fused %p : !spyreop.fp16_fused -> f16
  return
}
