// C013: an operation that the dialect does not have
// level: L0
// expected: error: custom op 'ktdp.launch' is unknown
// tags: rejections, text

func.func @f(%x: index) {
  ktdp.launch
  return
}
