// RUN: ktir-opt %s --split-input-file='// CUT' --output-split-marker='// PASTE' | FileCheck %s
// RUN: ktir-opt %s --split-input-file='// CUT' --output-split-marker= | FileCheck %s --check-prefix=NONE

// CHECK: func.func @a
// CHECK: {{^}}// PASTE{{$}}
// CHECK: func.func @a
// NONE: func.func @a
// NONE-NOT: //
// NONE: func.func @a
func.func @a() { return }
// CUT
func.func @a() { return }
