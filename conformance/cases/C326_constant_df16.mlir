// C326: there are no constants of other types
// level: L1
// expected: error: must be
// tags: rejections, spyreop

func.func @f() {
  %c = spyreop.constant 1.0 : f64
  return
}
