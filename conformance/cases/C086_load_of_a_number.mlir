// C086: a load takes a tile
// level: L1
// expected: error: must be !ktdp.access_tile
// tags: f16, rejections

func.func @f(%t: f16) {
  %a = ktdp.load %t : f16 -> tensor<4xf16>
  return
}
