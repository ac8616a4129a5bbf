// C015: a load names its result type
// level: L0
// expected: error: expected '->'
// tags: rejections, text

func.func @f(%x: !ktdp.access_tile<4xindex>) {
  %a = ktdp.load %x : <4xindex>
  return
}
