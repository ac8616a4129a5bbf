// C314: constants of f16 and f32
// level: L1
// expected: ok
// tags: f16, f32, spyreop

func.func @f() {
  %a = spyreop.constant 1.5 : f16
  %b = spyreop.constant -2.0e-3 : f32
  return
}
