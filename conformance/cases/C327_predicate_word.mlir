// C327: a predicate is one of six
// level: L1
// expected: error: expected one of
// tags: f16, rejections, spyreop

func.func @f(%a: f16) {
  %c = spyreop.compare <below> %a, %a : f16
  return
}
