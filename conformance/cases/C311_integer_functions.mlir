// C311: integer sums, products and addresses
// level: L1
// expected: ok
// tags: i32, i64, spyreop

func.func @f(%a: i32, %b: i32, %c: i64) {
  %0 = spyreop.addi32toi32 %a, %b
  %1 = spyreop.muli32toi32 %a, %b
  %2 = spyreop.addi64toi64 %c, %c
  %3 = spyreop.idx32toaddr %a base %b stride %b
  return
}
