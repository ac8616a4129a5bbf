// RUN: ktir-opt %s --cse --canonicalize --symbol-dce --ktir-stop-after=canonicalize --dump-pass-pipeline 2>&1 | FileCheck %s
// RUN: ktir-opt %s --pass-pipeline='builtin.module(func.func(cse),symbol-dce)' --ktir-stop-after=cse --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: not ktir-opt %s --cse --ktir-stop-after=symbol-dce 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK: builtin.module(cse,canonicalize)
// CHECK: func.func private @unused
// NESTED: builtin.module(func.func(cse))
// NONE: ktir-opt: error: '--ktir-stop-after=symbol-dce': the pipeline has no such pass (passes: cse)
// NONE-NOT: func.func
func.func private @unused()
