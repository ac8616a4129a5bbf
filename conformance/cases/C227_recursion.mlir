// C227: functions are not recursive
// level: L3
// expected: error: recursive
// tags: programs

func.func @loop(%x: index) {
  call @loop(%x) : (index) -> ()
  return
}
func.func @main(%x: index, %y: index) {
  call @loop(%x) : (index) -> ()
  return
}
