// Layer norm of one element, given the statistics of its row; then silu, unless the result is negative.
#id = affine_map<(d0) -> (d0)>
func.func @body(%x: tensor<64xf16>, %statistics: tensor<64x!spyreop.fp16_fused>, %w: tensor<64xf16>, %b: tensor<64xf16>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %y = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %statistics, %w, %b : tensor<64xf16>, tensor<64x!spyreop.fp16_fused>, tensor<64xf16>, tensor<64xf16>)
      outs(%e : tensor<64xf16>) {
  ^bb0(%in: f16, %pair: !spyreop.fp16_fused, %weight: f16, %bias: f16, %out: f16):
    %scale = spyreop.layernormscale_fused %pair : !spyreop.fp16_fused -> f16
    %norm = spyreop.layernormnorm %in squares %scale scale %scale weight %weight bias %bias : f16
    %zero = spyreop.constant 0.000000e+00 : f16
    %c = spyreop.compare <lesserthan> %norm, %zero : f16
    %s = spyreop.silu %norm : f16
    %r = spyreop.select %c, %zero, %s : f16
    linalg.yield %r : f16
  } -> tensor<64xf16>
  return %y : tensor<64xf16>
}
