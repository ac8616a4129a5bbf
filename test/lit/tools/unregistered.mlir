// RUN: ktir-opt %s -allow-unregistered-dialect | ktir-opt -allow-unregistered-dialect | FileCheck %s
// RUN: not ktir-opt %s 2>&1 | FileCheck %s --check-prefix=ERROR

// ERROR: unregistered.mlir:8:15: error: operation being parsed with an unregistered dialect
// CHECK: "foreign.op"(%arg0) {a = #ktir.acc<PT>} : (!ktdp.access_tile<4xindex>) -> ()
func.func @f(%t: !ktdp.access_tile<4xindex>) {
  // A dialect that nobody knows may hold types and attributes of ours.
  "foreign.op"(%t) {a = #ktir.acc<PT>} : (!ktdp.access_tile<4xindex>) -> ()
  return
}
