func.func @f(%x: f16, %w: !spyreop.df16) {
  %y = spyreop.rsqrt %x : f16
  %z = spyreop.rsqrt %w : !spyreop.df16
  return
}
