// RUN: ktir-opt %s --pass-pipeline='builtin.module(func.func(cse,canonicalize{top-down=true}),symbol-dce)' --dump-pass-pipeline 2>&1 | FileCheck %s
// RUN: ktir-opt %s --pass-pipeline 'cse, canonicalize' --mlir-timing 2>&1 >/dev/null | FileCheck %s --check-prefix=TIMING
// RUN: ktir-opt %s -cse --canonicalize='top-down=false max-iterations=3' -dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=FLAGS
// RUN: ktir-opt --promote-buffers-to-stack %s --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: not ktir-opt %s --pass-pipeline='builtin.module(cse,nonsense)' 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not ktir-opt %s --pass-pipeline='builtin.module(cse' 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: not ktir-opt %s --pass-pipeline=cse --cse 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: not ktir-opt %s --canonicalize='nonsense=1' 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ktir-opt %s --pass-pipeline='func.func(ktir-tile)' 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: not ktir-opt %s --ktir-tile='rows=many' 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not ktir-opt %s --ktir-tile='columns=4' 2>&1 | FileCheck %s --check-prefix=KEY

// CHECK: Pass Manager with 3 passes:
// CHECK-NEXT: builtin.module(func.func(cse,canonicalize{top-down=true}),symbol-dce)
// TIMING: Execution time report
// TIMING: Parser
// TIMING: cse
// TIMING: canonicalize
// TIMING: Total
// FLAGS: builtin.module(cse,canonicalize{top-down=false max-iterations=3})
// NESTED: builtin.module(func.func(promote-buffers-to-stack))
// UNKNOWN: pipeline:1:{{[0-9]+}}: error: 'nonsense' does not refer to a registered pass or pass pipeline
// OPEN: pipeline:1:19: error: expected ',' or ')'
// BOTH: ktir-opt: error: '--pass-pipeline' and '--cse' cannot be given together
// OPTION: error: pass 'canonicalize{nonsense=1}' cannot run: {{.*}}no such option nonsense
// ANCHOR: error: pass 'ktir-tile' runs on 'builtin.module', but is nested under 'func.func'
// VALUE: error: option 'rows' of pass 'ktir-tile': expected an integer, but got 'many'
// KEY: error: pass 'ktir-tile' has no option 'columns=4' (options: rows, target, lx-bytes, online-softmax, num-tiles)

// CHECK-LABEL: func.func @f
// CHECK-NEXT: arith.addi
// CHECK-NEXT: return
func.func @f(%a: index) -> index {
  %0 = arith.addi %a, %a : index
  %1 = arith.addi %a, %a : index
  return %1 : index
}
