func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.sigmoid %x : f16
  %z = spyreop.sigmoid %w : !spyreop.df16
  return
}
