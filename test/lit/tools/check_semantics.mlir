// RUN: ktir-opt %S/Inputs/add.mlir --check-semantics --ktir-canonicalize --canonicalize --cse | FileCheck %s
// CHECK-LABEL: func.func @add
// CHECK: arith.addf

// The whole way down; the instruction stream runs on the machine.
// RUN: ktir-opt %S/../lowering/inductor/softmax.mlir --check-semantics --mlir-timing -o %t.mlir --pass-pipeline='builtin.module(cse,ktir-break-views,ktir-assign-layouts,ktir-split-bodies,ktir-form-kernels,ktir-divide-work{cores=3},ktir-tile,ktir-allocate-scratchpad,convert-ktir-to-spyre)' 2>&1 | FileCheck %s --check-prefix=TIME
// TIME-NOT: warning
// TIME: Semantics

// From the middle.
// RUN: ktir-opt %S/../lowering/inductor/softmax.mlir --ktir-break-views --ktir-assign-layouts | ktir-opt --check-semantics --ktir-split-bodies --ktir-form-kernels -o %t.mlir 2>&1 | FileCheck %s --check-prefix=QUIET --allow-empty
// QUIET-NOT: warning

// RUN: ktir-opt %s --check-semantics --symbol-dce -o %t.mlir 2>&1 | FileCheck %s --check-prefix=NOT
// RUN: ktir-opt %s --check-semantics --cse -o %t.mlir 2>&1 | FileCheck %s --check-prefix=NOT
// NOT: warning: check-semantics: 'no_sense' does not run as it is given and is not checked until it does: 'arith.divui' op divides by zero
// NOT-SAME: check_semantics.mlir:24:8
// RUN: not ktir-opt %s --check-semantics=%t.none.npz --cse -o %t.mlir 2>&1 | FileCheck %s --check-prefix=FILE
// FILE: error: inputs: cannot read '{{.*}}.none.npz': No such file or directory

func.func private @gone() { return }
func.func @no_sense() {
  %0 = arith.constant 0 : index
  %1 = arith.divui %0, %0 : index
  return
}
