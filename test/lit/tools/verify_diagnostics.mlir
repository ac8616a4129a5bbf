// RUN: ktir-opt %s --verify-diagnostics -o /dev/null
// RUN: not ktir-opt %s --verify-diagnostics=some 2>&1 | FileCheck %s --check-prefix=USAGE
// USAGE: ktir-opt: error: '--verify-diagnostics=some': expected all or only-expected

// expected-note@below {{prior use here}}
func.func @f(%t: !ktdp.access_tile<4xindex>) {
  // expected-error-re@+1 {{use of value '%t' expects {{.*}}: '!ktdp.access_tile<{{[0-9]+}}xindex>' vs}}
  %0 = ktdp.load %t : <8xindex> -> tensor<8xf16>
}
