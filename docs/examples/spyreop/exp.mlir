func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.exp %x : f16
  %z = spyreop.exp %w : !spyreop.df16
  return
}
