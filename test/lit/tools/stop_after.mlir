// RUN: ktir-opt %s --cse --canonicalize --symbol-dce --ktir-stop-after=canonicalize --dump-pass-pipeline 2>&1 | FileCheck %s
// RUN: ktir-opt %s --pass-pipeline='builtin.module(func.func(cse),symbol-dce)' --ktir-stop-after=cse --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: not ktir-opt %s --cse --ktir-stop-after=symbol-dce 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not ktir-opt %s --ktir-to-allocated='lx-bytes=65536 verify=false' --ktir-stop-after=ktir-generalize 2>&1 | FileCheck %s --check-prefix=LEFT-OUT
// RUN: not ktir-opt %s --pass-pipeline='builtin.module(ktir-to-allocated{lx-bytes=65536})' --ktir-stop-after=cse 2>&1 | FileCheck %s --check-prefix=TEXT

// CHECK: builtin.module(cse,canonicalize)
// CHECK: func.func private @unused
// NESTED: builtin.module(func.func(cse))
// NONE: ktir-opt: error: '--ktir-stop-after=symbol-dce': the pipeline has no such pass (passes: cse)
// LEFT-OUT: ktir-opt: error: '--ktir-stop-after=ktir-generalize' leaves out 'ktir-plan', the first pass that takes 'lx-bytes=65536' of 'ktir-to-allocated'; did you mean '--ktir-stop-after=ktir-plan'?
// TEXT: ktir-opt: error: '--ktir-stop-after=cse' leaves out 'ktir-plan', the first pass that takes 'lx-bytes=65536' of 'ktir-to-allocated'
// NONE-NOT: func.func
func.func private @unused()
