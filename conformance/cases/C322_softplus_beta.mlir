// C322: beta is not zero
// level: L1
// expected: error: non-zero
// tags: f16, rejections, spyreop

func.func @f(%x: f16) {
  %y = spyreop.softplus %x beta 0.0 threshold 20.0 : f16
  return
}
