// C081: a load has the shape of its tile
// level: L1
// expected: error: shape
// tags: f16, rejections

func.func @f(%t: !ktdp.access_tile<4x2xindex>) {
  %a = ktdp.load %t : <4x2xindex> -> tensor<2x4xf16>
  return
}
