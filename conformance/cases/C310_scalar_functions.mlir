// C310: functions of one number, in all types
// level: L1
// expected: ok
// tags: f16, f32, spyreop

func.func @f(%a: f16, %b: !spyreop.df16, %c: f32) {
  %exp0 = spyreop.exp %a : f16
  %exp1 = spyreop.exp %b : !spyreop.df16
  %exp2 = spyreop.exp %c : f32
  %reciprocal0 = spyreop.reciprocal %a : f16
  %reciprocal1 = spyreop.reciprocal %b : !spyreop.df16
  %reciprocal2 = spyreop.reciprocal %c : f32
  %sigmoid0 = spyreop.sigmoid %a : f16
  %sigmoid1 = spyreop.sigmoid %b : !spyreop.df16
  %sigmoid2 = spyreop.sigmoid %c : f32
  %silu0 = spyreop.silu %a : f16
  %silu1 = spyreop.silu %b : !spyreop.df16
  %silu2 = spyreop.silu %c : f32
  %sqrt0 = spyreop.sqrt %a : f16
  %sqrt1 = spyreop.sqrt %b : !spyreop.df16
  %sqrt2 = spyreop.sqrt %c : f32
  %rsqrt0 = spyreop.rsqrt %a : f16
  %rsqrt1 = spyreop.rsqrt %b : !spyreop.df16
  %rsqrt2 = spyreop.rsqrt %c : f32
  %g = spyreop.gelu %b : !spyreop.df16
  return
}
