// C087: a load gives a ranked tensor
// level: L1
// expected: error: must be ranked tensor
// tags: rejections

func.func @f(%t: !ktdp.access_tile<4xindex>) {
  %a = ktdp.load %t : <4xindex> -> tensor<*xf16>
  return
}
