func.func @f(%a: f16, %b: f16) {
  %c = spyreop.realdiv %a, %b : f16
  return
}
