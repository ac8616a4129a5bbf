// C313: the functions of layer norm
// level: L1
// expected: ok
// tags: f32, spyreop

func.func @f(%a: f32) {
  %m, %q = spyreop.exx2 %a : f32
  %p = spyreop.exx2_fused %a : f32 -> !spyreop.fp32_fused
  %z = spyreop.exx2_zeromean_fused %a : f32 -> !spyreop.fp32_fused
  %s = spyreop.layernormscale %m squares %q : f32
  %t = spyreop.layernormscale_fused %p : !spyreop.fp32_fused -> f32
  %n = spyreop.layernormnorm %a squares %q scale %s weight %a bias %a : f32
  return
}
