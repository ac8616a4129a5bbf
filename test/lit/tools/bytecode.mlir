// RUN: ktir-opt %s --emit-bytecode -o %t.mlirbc
// RUN: ktir-opt %t.mlirbc | FileCheck %s
// RUN: ktir-opt %s --emit-bytecode | ktir-opt - --cse --mlir-print-debuginfo | FileCheck %s --check-prefix=PLACES
// RUN: ktir-opt %s --no-implicit-module --emit-bytecode | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --emit-bytecode --verify-roundtrip -o /dev/null

// CHECK: func.func @f(%arg0: !ktdp.access_tile<4xindex>)
// CHECK-NEXT: ktdp.load %arg0 : <4xindex> -> tensor<4xf16>
// PLACES: bytecode.mlir":11:8)
func.func @f(%t: !ktdp.access_tile<4xindex>) -> tensor<4xf16> {
  %0 = ktdp.load %t : <4xindex> -> tensor<4xf16>
  return %0 : tensor<4xf16>
}
