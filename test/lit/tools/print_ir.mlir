// RUN: ktir-opt %s --cse --canonicalize --mlir-print-ir-after-all 2>&1 >/dev/null | FileCheck %s --check-prefix=ALL
// RUN: ktir-opt %s --cse --canonicalize --mlir-print-ir-after=canonicalize 2>&1 >/dev/null | FileCheck %s --check-prefix=ONE
// RUN: ktir-opt %s --cse --canonicalize --mlir-print-ir-before=cse 2>&1 >/dev/null | FileCheck %s --check-prefix=BEFORE
// RUN: ktir-opt %s --cse --canonicalize --cse --mlir-print-ir-after-change 2>&1 >/dev/null | FileCheck %s --check-prefix=CHANGE
// RUN: ktir-opt %s --cse --mlir-print-ir-before-all --mlir-print-op-generic 2>&1 >/dev/null | FileCheck %s --check-prefix=GENERIC

// ALL: // -----// IR Dump After cse (cse) //----- //
// ALL-NEXT: module {
// ALL: arith.muli
// ALL: // -----// IR Dump After canonicalize (canonicalize) //----- //
// ALL: ktdp.get_compute_tile_id : index
// ALL-NOT: arith.muli

// ONE-NOT: After cse
// ONE: // -----// IR Dump After canonicalize (canonicalize) //----- //
// ONE-NOT: IR Dump

// BEFORE: // -----// IR Dump Before cse (cse) //----- //
// BEFORE-NOT: IR Dump

// CHANGE-NOT: After cse
// CHANGE: After canonicalize
// CHANGE-NOT: After cse

// GENERIC: // -----// IR Dump Before cse (cse) //----- //
// GENERIC: "ktdp.get_compute_tile_id"() : () -> index
func.func @f() -> index {
  %t = ktdp.get_compute_tile_id : index
  %c1 = arith.constant 1 : index
  %0 = arith.muli %t, %c1 : index
  return %0 : index
}
