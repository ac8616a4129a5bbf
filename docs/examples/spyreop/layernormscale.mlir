func.func @f(%m: f16, %sq: f16) {
  %c = spyreop.layernormscale %m squares %sq : f16
  return
}
