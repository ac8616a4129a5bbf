// C014: division is spelled floordiv or ceildiv
// level: L0
// expected: error: expected affine expression of SSA values
// tags: affine-subscripts, f16, rejections, text

func.func @f(%v: memref<4xf16>, %i: index) {
  %t = ktdp.construct_access_tile %v[%i / 2] {} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  return
}
