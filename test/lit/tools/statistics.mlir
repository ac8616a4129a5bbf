// RUN: ktir-opt %s --cse --canonicalize --cse --mlir-pass-statistics 2>&1 >/dev/null | FileCheck %s
// RUN: ktir-opt %s --cse --canonicalize --cse --mlir-pass-statistics --mlir-pass-statistics-display=pipeline 2>&1 >/dev/null | FileCheck %s --check-prefix=RUNS
// RUN: not ktir-opt %s --mlir-pass-statistics-display=all 2>&1 | FileCheck %s --check-prefix=DISPLAY

// DISPLAY: ktir-opt: error: '--mlir-pass-statistics-display=all': expected list or pipeline

// CHECK: ... Pass statistics report ...
// CHECK: canonicalize
// CHECK-NEXT: (S) {{ *}}4 ops-before
// CHECK-NEXT:   (S) {{ *}}4 ops-after
// CHECK-NEXT: cse
// CHECK-NEXT: (S) {{ *}}9 ops-before
// CHECK-NEXT: (S) {{ *}}8 ops-after

// RUNS: cse
// RUNS-NEXT: (S) {{ *}}5 ops-before
// RUNS-NEXT: (S) {{ *}}4 ops-after
// RUNS-NEXT: canonicalize
// RUNS-NEXT: (S) {{ *}}4 ops-before
// RUNS-NEXT: (S) {{ *}}4 ops-after
// RUNS-NEXT: cse
// RUNS-NEXT: (S) {{ *}}4 ops-before
func.func @f() -> index {
  %0 = ktdp.get_compute_tile_id : index
  %1 = ktdp.get_compute_tile_id : index
  return %1 : index
}
