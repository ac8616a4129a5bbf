// RUN: not ktir-opt %s --split-input-file 2> %t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR < %t.err
// RUN: ktir-opt %s -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=CHECKED

// The good parts are printed, and places count in the whole file.

// CHECK: func.func @first
// CHECK: // -----
// CHECK: func.func @third
// CHECKED: func.func @first
// CHECKED: // -----
// CHECKED: func.func @third
func.func @first() { return }
//-----
// -----

func.func @second() {
  // ERROR: split_input.mlir:[[L:[0-9]+]]:3: error: custom op 'ktdp.nothing' is unknown
  // ERROR-NEXT: {{^}}  ktdp.nothing
  // ERROR-NEXT: {{^}}  ^
  // expected-error@+1 {{custom op 'ktdp.nothing' is unknown}}
  ktdp.nothing
}

// -----

func.func @third() { return }
