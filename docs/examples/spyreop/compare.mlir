func.func @f(%a: f32, %b: f32) {
  %c = spyreop.compare <lesserthan> %a, %b : f32
  return
}
