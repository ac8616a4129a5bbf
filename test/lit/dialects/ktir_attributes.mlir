// RUN: ktir-opt %s | FileCheck %s
// RUN: ktir-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: func.func @attributes(
// CHECK-SAME: tensor<3x200x64xf16, #ktir.layout<size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, arrangement = standard, pad = zero>>
// CHECK-SAME: {ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [57, 64], strides = [64, 1]>}
// CHECK-SAME: attributes {grid = [29], ktir.rows = array<i64: 57>, ktir.work = #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>}
func.func @attributes(%x: tensor<3x200x64xf16, #ktir.layout<size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, pad = zero>>
    {ktir.host = #ktir.host_view<arg = 1, offset = 0, size = [57, 64], strides = [64, 1]>}, %n: index)
    attributes {grid = [29], ktir.rows = array<i64: 57>, ktir.work = #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // CHECK: ktir.acc = #ktir.acc<PT>
  scf.for %i = %c0 to %n step %c1 {
  } {ktir.acc = #ktir.acc<PT>}
  // CHECK: my.rotate = #ktir.rotate<nbuf = 2, stride = 8192>
  scf.for %i = %c0 to %n step %c1 {
  } {my.rotate = #ktir.rotate<nbuf = 2, stride = 8192>}
  return
}
