// C082: a store has the shape of its tile
// level: L1
// expected: error: shape
// tags: f16, rejections

func.func @f(%t: !ktdp.access_tile<4xindex>, %a: tensor<5xf16>) {
  ktdp.store %a, %t : tensor<5xf16>, <4xindex>
  return
}
