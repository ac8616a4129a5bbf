func.func @f(%x: f16) {
  %m, %sq = spyreop.exx2 %x : f16
  %c = spyreop.layernormscale %m squares %sq : f16
  return
}
