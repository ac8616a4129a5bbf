// C083: a dynamic extent is no static one
// level: L1
// expected: error: shape
// tags: f16, rejections

func.func @f(%t: !ktdp.access_tile<4xindex>, %a: tensor<?xf16>) {
  ktdp.store %a, %t : tensor<?xf16>, <4xindex>
  return
}
