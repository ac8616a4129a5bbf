// C320: gelu is of 16-bit numbers
// level: L1
// expected: error: operand #0 must be
// tags: f32, rejections, spyreop

func.func @f(%x: f32) {
  %y = spyreop.gelu %x : f32
  return
}
