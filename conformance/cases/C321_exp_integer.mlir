// C321: exp is of numbers with a fraction
// level: L1
// expected: error: must be
// tags: i32, rejections, spyreop

func.func @f(%x: i32) {
  %y = spyreop.exp %x : i32
  return
}
