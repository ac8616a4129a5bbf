func.func @f(%acc: tensor<1x2x64xf32>, %n: index) -> tensor<1x2x64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %k = %c0 to %n step %c1 iter_args(%a = %acc) -> (tensor<1x2x64xf32>) {
    scf.yield %a : tensor<1x2x64xf32>
  } {ktir.acc = #ktir.acc<PT>}
  return %r : tensor<1x2x64xf32>
}
