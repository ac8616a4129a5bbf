// RUN: rm -rf %t
// RUN: ktir-opt %s --cse --canonicalize --mlir-print-ir-tree-dir=%t/all 2>&1 | FileCheck %s --check-prefix=STDERR
// RUN: FileCheck %s --check-prefix=FIRST < %t/all/builtin_module_no-symbol-name/0_cse.mlir
// RUN: FileCheck %s --check-prefix=SECOND < %t/all/builtin_module_no-symbol-name/1_canonicalize.mlir
// RUN: ktir-opt %s --cse --canonicalize --mlir-print-ir-tree-dir=%t/one --mlir-print-ir-after=canonicalize -o /dev/null
// RUN: ls %t/one/builtin_module_no-symbol-name | FileCheck %s --check-prefix=ONE
// RUN: not ktir-opt %s --cse --mlir-print-ir-tree-dir=%s 2>&1 | FileCheck %s --check-prefix=BAD

// STDERR-NOT: IR Dump
// STDERR: func.func @f
// FIRST: // -----// IR Dump After cse (cse) //----- //
// FIRST: ktdp.get_compute_tile_id : index
// SECOND: // -----// IR Dump After canonicalize (canonicalize) //----- //
// ONE-NOT: cse
// ONE: 0_canonicalize.mlir
// BAD: ktir-opt: error: cannot write '{{.*}}tree_dir.mlir{{.*}}': Not a directory
func.func @f() -> index {
  %0 = ktdp.get_compute_tile_id : index
  return %0 : index
}
