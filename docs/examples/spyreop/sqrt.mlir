func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.sqrt %x : f16
  %z = spyreop.sqrt %w : !spyreop.df16
  return
}
