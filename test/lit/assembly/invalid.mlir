// RUN: ktir-opt %s --split-input-file --verify-diagnostics

func.func @f(%a: index) {
  // expected-error@+1 {{expected SSA operand}}
  %0 = ktdp.load 4 : <4xindex> -> tensor<4xf16>
}

// -----

func.func @f(%a: index) {
  // expected-error@+2 {{expected '->'}}
  %0 = ktdp.load %a : <4xindex>
  return
}

// -----

// expected-error@+1 {{tile element type must be 'index', but got: 'f16'}}
func.func private @f(!ktdp.access_tile<4xf16>)

// -----

// expected-error@+1 {{expected dimension list}}
func.func private @f(!ktdp.access_tile<4x*xindex>)

// -----

func.func private @f(
  tensor<4xf16>,
  // expected-error@+1 {{ct_id is only legal for memory space 'ct_local'}}
  memref<4xf16, #ktdp.memory_space<global, ct_id = 0>>)

// -----

// expected-error@+1 {{ct_id must be non-negative}}
func.func private @f(memref<4xf16, #ktdp.memory_space<ct_local, ct_id = -5>>)

// -----

// expected-error@+1 {{expected one of: global, ct_local}}
func.func private @f(memref<4xf16, #ktdp.memory_space<LX>>)

// -----

// expected-error@+1 {{missing parameter 'stride'}}
func.func private @f() attributes {a = #ktir.rotate<nbuf = 2>}

// -----

// expected-error@+1 {{expected one of: nbuf, stride}}
func.func private @f() attributes {a = #ktir.rotate<nbuf = 2, steps = 4>}

// -----

// expected-error@+1 {{duplicate parameter 'nbuf'}}
func.func private @f() attributes {a = #ktir.rotate<nbuf = 2, nbuf = 4>}

// -----

func.func @f(%v: memref<4xf16>, %i: index) {
  // expected-error@+1 {{expected affine expression of SSA values}}
  %0 = ktdp.construct_access_tile %v[%i / 2] {} : memref<4xf16> -> !ktdp.access_tile<4xindex>
}

// -----

func.func @f(%v: memref<4xf16>, %i: index) {
  // expected-error@+1 {{'base_map' is already set by the op's own syntax}}
  %0 = ktdp.construct_access_tile %v[%i] {base_map = affine_map<(d0) -> (d0)>} : memref<4xf16> -> !ktdp.access_tile<4xindex>
}

// -----

func.func @f(%v: memref<4xf16>) {
  // expected-error@+1 {{use of undeclared SSA value name}}
  %0 = ktdp.construct_access_tile %v[%nobody] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 == 0)>} : memref<4xf16> -> !ktdp.access_tile<1xindex>
}

// -----

func.func @f() {
  // expected-error@+1 {{custom op 'ktdp.launch' is unknown}}
  ktdp.launch
}

// -----

func.func @f() {
  // expected-error@+1 {{; did you mean 'ktdp.load'?}}
  ktdp.laod
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{; did you mean 'arith.addf'?}}
  %0 = arith.adddf %x, %x : f32
}

// -----

func.func @f(%x: index) {
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {
    // expected-error@+1 {{unbalanced brackets}}
    coordinate_set = affine_set<(d0 : (d0 >= 0>,
    memory_space = #ktdp.memory_space<global>} : memref<4xf16>
}

// -----

// expected-note@+1 {{prior use here}}
func.func @f(%t: !ktdp.access_tile<4xindex>) {
  // expected-error@+1 {{use of value '%t' expects different type than prior uses: '!ktdp.access_tile<8xindex>' vs '!ktdp.access_tile<4xindex>'}}
  %0 = ktdp.load %t : <8xindex> -> tensor<8xf16>
}
