// RUN: ktir-opt %s --ktir-inline --split-input-file --verify-diagnostics -o /dev/null

// expected-note@+1 {{'@f' is defined here}}
func.func @f(%a: index) {
  // expected-error@+1 {{'func.call' op is recursive: '@f' calls '@f'}}
  func.call @f(%a) : (index) -> ()
  return
}

// -----

func.func @start(%a: index) {
  func.call @f(%a) : (index) -> ()
  return
}
// expected-note@+1 {{'@f' is defined here}}
func.func @f(%a: index) {
  func.call @g(%a) : (index) -> ()
  return
}
func.func @g(%a: index) {
  scf.for %i = %a to %a step %a {
    // expected-error@+1 {{'func.call' op is recursive: '@f' calls '@g' calls '@f'}}
    func.call @f(%i) : (index) -> ()
  }
  return
}

// -----

// A kernel is not inlined, but a program must end.
// expected-note@+1 {{'@k' is defined here}}
func.func @k(%a: index) attributes {grid = [4]} {
  func.call @g(%a) : (index) -> ()
  return
}
func.func @g(%a: index) {
  // expected-error@+1 {{'func.call' op is recursive: '@k' calls '@g' calls '@k'}}
  func.call @k(%a) : (index) -> ()
  return
}
