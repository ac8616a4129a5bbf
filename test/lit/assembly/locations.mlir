// RUN: ktir-opt - --mlir-print-debuginfo --mlir-print-local-scope < %s | FileCheck %s
// RUN: ktir-opt - --mlir-print-debuginfo < %s | ktir-opt --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// Locations are those of the source, also after text that was rewritten to something longer.

// CHECK: func.func @f(%arg0: !ktdp.access_tile<4xindex> loc("<stdin>":9:16), %arg1: index loc("<stdin>":9:51)) {
// CHECK-NEXT: ktdp.load %arg0 : <4xindex> -> tensor<4xf16> loc("<stdin>":10:8)
// CHECK-NEXT: ktdp.load %arg0 : <4xindex> -> tensor<4xf16> loc("<stdin>":10:58)
func.func   @f(%tile: !ktdp.access_tile<4xindex>, %n: index) {
  %a = ktdp.load %tile : <4xindex> -> tensor<4xf16> %b = ktdp.load %tile : <4xindex> -> tensor<4xf16>
  // CHECK-NEXT: ktdp.store %{{.*}}, %arg0 : tensor<4xf16>, <4xindex> loc("<stdin>":14:3)
  // CHECK-NEXT: arith.constant 0 : index loc("<stdin>":16:23)
  // CHECK-NEXT: ktdp.get_compute_tile_id : index loc("kernel.py":7:5)
  ktdp.store %a, %tile :
    tensor<4xf16>,
      <4xindex> %c0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index loc("kernel.py":7:5)
  // CHECK-NEXT: ktdp.get_compute_tile_id : index loc(fused["a"("kernel.py":7:5), "<stdin>":20:8])
  %u = ktdp.get_compute_tile_id : index loc(fused["a"("kernel.py":7:5), "<stdin>":20:8])
  return
}
