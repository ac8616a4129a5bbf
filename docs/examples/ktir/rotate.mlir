#box64x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 63 >= 0, d1 >= 0, -d1 + 63 >= 0)>
func.func @f(%i: index) {
  // The view of the slot that trip %i uses.
  %c2 = arith.constant 2 : index
  %slot = arith.constant 4096 : index
  %phase = arith.remui %i, %c2 : index
  %at = arith.muli %phase, %slot : index
  %v = ktdp.construct_memory_view %at, sizes: [64, 64], strides: [64, 1]
      {coordinate_set = #box64x64, memory_space = #ktdp.memory_space<ct_local>, ktir.rotate = #ktir.rotate<nbuf = 2, stride = 8192>} : memref<64x64xf16>
  return
}
