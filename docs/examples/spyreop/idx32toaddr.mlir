func.func @f(%i: i32, %b: i32, %s: i32) {
  %a = spyreop.idx32toaddr %i base %b stride %s
  return
}
