func.func @f(%x: f16, %s: f16, %c: f16, %w: f16, %b: f16) {
  %y = spyreop.layernormnorm %x squares %s scale %c weight %w bias %b : f16
  return
}
