// C023: a stripped type is the type of its value
// level: L0
// expected: error: expects different type than prior uses
// tags: f16, rejections, text

func.func @f(%t: !ktdp.access_tile<4xindex>) {
  %a = ktdp.load %t : <8xindex> -> tensor<8xf16>
  return
}
