func.func @f(%a: i64, %b: i64) {
  %c = spyreop.addi64toi64 %a, %b
  return
}
