// C052: as many size operands as dynamic sizes
// level: L1
// expected: error: dynamic size
// tags: f16, rejections

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  %v = "ktdp.construct_memory_view"(%x) {coordinate_set = #box, memory_space = #ktdp.memory_space<global>,
      operandSegmentSizes = array<i32: 1, 0, 0>, static_sizes = array<i64: -9223372036854775808>,
      static_strides = array<i64: 1>} : (index) -> memref<?xf16>
  return
}
