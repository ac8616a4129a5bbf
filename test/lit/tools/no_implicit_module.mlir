// RUN: not ktir-opt %s --no-implicit-module --cse --split-input-file 2> %t | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR < %t

// CHECK-NOT: module
// CHECK: func.func @f() {
func.func @f() { return }

// -----

// CHECK: module @m {
module @m {}

// -----

// ERROR: no_implicit_module.mlir:18:1: error: the source must contain a single op at the top, but has 2

func.func @a() { return }
func.func @b() { return }
