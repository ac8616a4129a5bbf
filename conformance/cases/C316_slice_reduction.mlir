// C316: a reduction of a stick
// level: L1
// expected: ok
// tags: f16, spyreop

func.func @f(%x: tensor<64xf16>) {
  %y = spyreop.slice_reduction %x {reduction_kind = #spyreop.reduction_kind<abs_max>, reduction_scope = #spyreop.reduction_scope<across_slice>} : tensor<64xf16> -> tensor<64xf16>
  return
}
