func.func @f(%x: f16) {
  %p = spyreop.exx2_fused %x : f16 -> !spyreop.fp16_fused
  return
}

// -----

func.func @f(%x: f16) {
  // expected-error@+2 {{inferred type(s) '!spyreop.fp16_fused' are incompatible}}
  // expected-error@+1 {{failed to infer returned types}}
  %p = spyreop.exx2_fused %x : f16 -> !spyreop.fp32_fused
  return
}
