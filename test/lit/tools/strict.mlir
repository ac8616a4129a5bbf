// RUN: ktir-opt %s | ktir-opt | FileCheck %s
// RUN: ktir-opt %s --warn-deprecated -o %t 2>&1 | FileCheck %s --check-prefix=WARN
// RUN: FileCheck %s < %t
// RUN: not ktir-opt %s --strict -o %t.strict 2>&1 | FileCheck %s --check-prefix=STRICT
// RUN: not ls %t.strict
// RUN: ktir-opt %s --ktir-upgrade | ktir-opt --strict | FileCheck %s --check-prefix=NEW

// CHECK: a.space = #ktdp.spyre_memory_space<HBM>
// WARN: strict.mlir:12:72: warning: '#ktdp.spyre_memory_space' is deprecated: write '#ktdp.memory_space<global>'
// STRICT: strict.mlir:12:72: error: '#ktdp.spyre_memory_space' is deprecated
// NEW: a.space = #ktdp.memory_space<global>
func.func @f(%a: index) attributes {a.space = #ktdp.spyre_memory_space<HBM>} { return }
