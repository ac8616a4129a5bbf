// RUN: ktir-opt %s --mlir-print-op-generic | FileCheck %s --check-prefix=GENERIC
// RUN: ktir-opt %s --mlir-print-debuginfo | FileCheck %s --check-prefix=DEBUG
// RUN: ktir-opt %s -mlir-print-debuginfo -mlir-pretty-debuginfo | FileCheck %s --check-prefix=SHORT
// RUN: ktir-opt %s --mlir-print-local-scope | FileCheck %s --check-prefix=LOCAL
// RUN: ktir-opt %s --mlir-print-skip-regions | FileCheck %s --check-prefix=SKIP
// RUN: ktir-opt %s --mlir-elide-elementsattrs-if-larger=2 | FileCheck %s --check-prefix=ELIDE
// RUN: ktir-opt %s --mlir-elide-resource-strings-if-larger=4 | FileCheck %s --check-prefix=RESOURCE
// RUN: not ktir-opt %s --mlir-elide-elementsattrs-if-larger=x 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: ktir-opt %s --mlir-disable-threading --mlir-print-ir-module-scope --mlir-print-assume-verified -o %t.out
// RUN: FileCheck %s --check-prefix=FILE < %t.out
// RUN: ktir-opt -o=%t.out -verify-each=false < %s
// RUN: FileCheck %s --check-prefix=FILE < %t.out
// RUN: ktir-opt --verify-roundtrip - -o - < %s | FileCheck %s --check-prefix=FILE

// GENERIC: "ktdp.get_compute_tile_id"() : () -> index
// DEBUG: ktdp.get_compute_tile_id : index loc(#loc[[L:[0-9]+]])
// DEBUG: #loc[[L]] = loc("{{.*}}printing.mlir":[[N:[0-9]+]]:8)
// SHORT: ktdp.get_compute_tile_id : index {{.*}}printing.mlir:{{[0-9]+}}:8
// LOCAL-NOT: {{^#}}
// LOCAL: #ktdp.memory_space<global>
// LOCAL-SAME: affine_set<(d0) : (d0 >= 0)>
// SKIP: module {...}
// ELIDE: dense_resource<__elided__>
// RESOURCE: tensor<4xi32>
// NUMBER: ktir-opt: error: '--mlir-elide-elementsattrs-if-larger=x': expected a number
// FILE: func.func @f
func.func @f() -> (index, tensor<4xi32>) attributes {a.s = #ktdp.memory_space<global>, a.t = affine_set<(d0) : (d0 >= 0)>} {
  %0 = ktdp.get_compute_tile_id : index
  %1 = arith.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  return %0, %1 : index, tensor<4xi32>
}
