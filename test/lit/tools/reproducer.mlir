// RUN: rm -f %t.mlir
// RUN: not ktir-opt %s --cse --inline --lower-affine --test-nothing 2>&1 | FileCheck %s --check-prefix=USAGE
// RUN: not ktir-opt %s --pass-pipeline='cse,one-shot-bufferize{bufferize-function-boundaries=true},canonicalize' --mlir-pass-pipeline-crash-reproducer=%t.mlir --mlir-print-ir-after-failure 2> %t.err
// RUN: FileCheck %s --check-prefix=ERROR < %t.err
// RUN: FileCheck %s < %t.mlir
// RUN: not ktir-opt %t.mlir --run-reproducer 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not ktir-opt %s --run-reproducer 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: ktir-opt %s --cse --mlir-pass-pipeline-crash-reproducer=%t.good.mlir | ktir-opt
// RUN: not ls %t.good.mlir
// RUN: ktir-opt %s --cse --canonicalize --mlir-generate-reproducer=%t.all.mlir -o %t.direct.mlir
// RUN: FileCheck %s --check-prefix=WHOLE < %t.all.mlir
// RUN: ktir-opt %t.all.mlir --run-reproducer | diff - %t.direct.mlir
// RUN: not ktir-opt %s --cse --mlir-generate-reproducer=%t.none/x.mlir 2>&1 | FileCheck %s --check-prefix=FOLDER

// WHOLE: pipeline: "builtin.module(cse,canonicalize)",
// FOLDER: ktir-opt: error: cannot write '{{.*}}.none/x.mlir': No such file or directory
// USAGE: ktir-opt: error: unknown command line argument '--test-nothing'

// ERROR: reproducer.mlir:[[L:[0-9]+]]:8: error: op was not bufferized
// ERROR: note: in pass 'one-shot-bufferize{bufferize-function-boundaries=true}'

// NONE: reproducer.mlir:1:1: error: the input is no reproducer: it has no 'mlir_reproducer' section

// CHECK: ktdp.load %arg0 : <4xindex> -> tensor<4xf16> loc(
// CHECK: {-#
// CHECK-NEXT: external_resources: {
// CHECK-NEXT:   mlir_reproducer: {
// CHECK-NEXT:     pipeline: "builtin.module(one-shot-bufferize{bufferize-function-boundaries=true})",
// CHECK-NEXT:     disable_threading: true,
// CHECK-NEXT:     verify_each: true
func.func @f(%t: !ktdp.access_tile<4xindex>) {
  %0 = ktdp.load %t : <4xindex> -> tensor<4xf16>
  ktdp.store %0, %t : tensor<4xf16>, <4xindex>
  return
}
