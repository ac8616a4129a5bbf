func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.silu %x : f16
  %z = spyreop.silu %w : !spyreop.df16
  return
}
