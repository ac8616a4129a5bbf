// C317: tensors of df16 and of pairs
// level: L1
// expected: ok
// tags: df16, spyreop

func.func private @f(tensor<64x!spyreop.df16>, tensor<4x!spyreop.fp16_fused>, tensor<4x!spyreop.df16_fused>, tensor<4x!spyreop.fp32_fused>)
