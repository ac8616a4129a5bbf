// C315: softplus
// level: L1
// expected: ok
// tags: f16, spyreop

func.func @f(%x: f16) {
  %y = spyreop.softplus %x beta 0.5 threshold 20.0 : f16
  return
}
