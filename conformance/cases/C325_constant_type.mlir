// C325: value and result of a constant have one type
// level: L1
// expected: error: same type
// tags: f32, rejections, spyreop

func.func @f() {
  %c = "spyreop.constant"() {value = 1.0 : f32} : () -> f16
  return
}
