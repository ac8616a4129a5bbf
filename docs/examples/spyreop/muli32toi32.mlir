func.func @f(%a: i32, %b: i32) {
  %c = spyreop.muli32toi32 %a, %b
  return
}
