func.func @f(%c: f16, %t: f16, %f: f16) {
  %y = spyreop.select %c, %t, %f : f16
  return
}
