// RUN: ktir-opt %s --ktir-inline | FileCheck %s
// RUN: ktir-opt %s --ktir-inline --mlir-print-debuginfo | FileCheck %s --check-prefix=PLACES
// RUN: ktir-opt %s --ktir-inline --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS
// RUN: ktir-opt %s --ktir-inline --remarks-filter-missed=inline --remark-format=yaml -o /dev/null 2>&1 | FileCheck %s --check-prefix=YAML
// RUN: ktir-opt %s --ktir-inline --remarks-filter=inline --remarks-output-file=%t -o /dev/null
// RUN: FileCheck %s --check-prefix=REMARKS < %t
// RUN: ktir-opt %s --ktir-inline --mlir-pass-statistics -o /dev/null 2>&1 | FileCheck %s --check-prefix=STATISTICS

// PLACES: loc(callsite(

// REMARKS-DAG: ktir_inline.mlir:{{[0-9]+}}:12: remark: [ktir-inline] '@twice' inlined
// REMARKS-DAG: remark: [ktir-inline] '@outside' is not inlined: it is a declaration
// REMARKS-DAG: remark: [ktir-inline] '@branches' is not inlined: it has 2 blocks
// REMARKS-NOT: '@kernel' is not inlined

// YAML: --- !Missed
// YAML-NEXT: Pass: ktir-inline
// YAML-NEXT: Name: ktir-inline
// YAML-NEXT: DebugLoc: { File: '{{.*}}ktir_inline.mlir', Line: {{[0-9]+}}, Column: 3 }
// YAML-NOT: Passed

// STATISTICS: ktir-inline
// STATISTICS: 5 calls-inlined
// STATISTICS: 2 functions-erased

// A private helper goes when its last call goes; one that is named elsewhere stays, and so does a public one.
// CHECK-NOT: @twice
// CHECK-NOT: @store_row
// CHECK-LABEL: func.func private @named(
func.func private @twice(%a: index) -> (index, index) {
  %0 = arith.addi %a, %a : index
  return %0, %a : index, index
}
func.func private @named(%a: index) -> index {
  %0 = arith.muli %a, %a : index
  return %0 : index
}
func.func private @outside(%a: index)
func.func @branches(%a: index) {
  cf.br ^bb1
^bb1:
  return
}
func.func private @store_row(%t: !ktdp.access_tile<2xindex>, %n: index) {
  %0, %1 = func.call @twice(%n) : (index) -> (index, index)
  %v = ktdp.load %t : <2xindex> -> tensor<2xf16>
  scf.for %i = %1 to %0 step %n {
    ktdp.store %v, %t : tensor<2xf16>, <2xindex>
  }
  return
}

// Calls in loops, branches and bodies that were inlined themselves.
// CHECK-LABEL: func.func @kernel(
// CHECK-SAME: %[[T:.*]]: !ktdp.access_tile<2xindex>, %[[N:.*]]: index, %[[C:.*]]: i1
// CHECK: scf.for %[[I:.*]] =
// CHECK-NEXT: scf.if %[[C]]
// CHECK-NEXT: %[[A:.*]] = arith.addi %[[I]], %[[I]]
// CHECK-NEXT: %[[V:.*]] = ktdp.load %[[T]]
// CHECK-NEXT: scf.for %{{.*}} = %[[I]] to %[[A]] step %[[I]]
// CHECK-NEXT: ktdp.store %[[V]], %[[T]]
// CHECK-NEXT: }
// CHECK-NEXT: } else {
// CHECK-NEXT: %[[B:.*]] = arith.addi %[[N]], %[[N]]
// CHECK-NEXT: arith.addi %[[B]], %[[N]]
// CHECK-NOT: call
// CHECK: return
func.func @kernel(%t: !ktdp.access_tile<2xindex>, %n: index, %c: i1) attributes {grid = [4]} {
  scf.for %i = %n to %n step %n {
    scf.if %c {
      func.call @store_row(%t, %i) : (!ktdp.access_tile<2xindex>, index) -> ()
    } else {
      %0:2 = func.call @twice(%n) : (index) -> (index, index)
      %1 = arith.addi %0#0, %0#1 : index
    }
  }
  return
}

// CHECK-LABEL: func.func @entry(
// CHECK-NEXT: call @kernel
// CHECK-NEXT: call @outside
// CHECK-NEXT: call @branches
// CHECK-NEXT: arith.muli
// CHECK-NEXT: return
func.func @entry(%t: !ktdp.access_tile<2xindex>, %n: index, %c: i1) attributes {a.uses = [{f = @named}]} {
  func.call @kernel(%t, %n, %c) : (!ktdp.access_tile<2xindex>, index, i1) -> ()
  func.call @outside(%n) : (index) -> ()
  func.call @branches(%n) : (index) -> ()
  %0 = func.call @named(%n) : (index) -> index
  return
}

// A nested module has names of its own.
// CHECK-LABEL: module @inner
module @inner {
  func.func @twice(%a: index) { return }
  // CHECK-LABEL: func.func @user(
  // CHECK-NEXT: return
  func.func @user(%a: index) {
    func.call @twice(%a) : (index) -> ()
    return
  }
}
