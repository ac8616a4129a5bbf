// C086: a load takes a tile
// level: L1
// expected: error: must be !ktdp.access_tile

func.func @f(%t: f16) {
  %a = ktdp.load %t : f16 -> tensor<4xf16>
  return
}
