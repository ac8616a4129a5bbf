// C016: a load needs an operand
// level: L0
// expected: error: expected SSA operand
// tags: f16, rejections, text

func.func @f(%x: index) {
  %a = ktdp.load 4 : <4xindex> -> tensor<4xf16>
  return
}
