// C329: a slice reduction is of a tensor
// level: L1
// expected: error: must be
// tags: f16, rejections, spyreop

func.func @f(%x: f16) {
  %y = spyreop.slice_reduction %x {reduction_kind = #spyreop.reduction_kind<add>, reduction_scope = #spyreop.reduction_scope<in_slice>} : f16 -> f16
  return
}
