// RUN: ktir-opt %s --cse --mlir-timing 2>&1 >/dev/null | FileCheck %s
// RUN: ktir-opt %s --cse --mlir-timing --mlir-timing-display=list 2>&1 >/dev/null | FileCheck %s --check-prefix=LIST
// RUN: ktir-opt %s --cse --mlir-timing --mlir-output-format=json 2>&1 >/dev/null | FileCheck %s --check-prefix=JSON
// RUN: ktir-opt %s --cse --mlir-timing -o /dev/null 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: not ktir-opt %s --mlir-output-format=xml 2>&1 | FileCheck %s --check-prefix=FORMAT

// CHECK: ... Execution time report ...
// CHECK: ----Wall Time----  ----Name----
// CHECK: {{[0-9.]+ \( *[0-9.]+%\)}}  Read
// CHECK: Parser
// CHECK: cse
// CHECK: Output
// CHECK: (100.0%)  Total

// LIST: Execution time report
// LIST: Total

// JSON: [{"wall": {"duration": {{[0-9.]+}}, "percentage": {{[0-9.]+}}}, "name": "Read"},
// JSON: "name": "cse"},
// JSON: "percentage": 100.0}, "name": "Total"}
// JSON-NEXT: ]

// ALONE-NOT: func.func
// FORMAT: ktir-opt: error: '--mlir-output-format=xml': expected text or json
func.func @f() { return }
