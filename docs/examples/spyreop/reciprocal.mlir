func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.reciprocal %x : f16
  %z = spyreop.reciprocal %w : !spyreop.df16
  return
}
