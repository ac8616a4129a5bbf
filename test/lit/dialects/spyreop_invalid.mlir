// RUN: ktir-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: f16) {
  // expected-error@+1 {{'spyreop.softplus' op attribute 'beta' failed to satisfy constraint: 32-bit float attribute which is non-zero}}
  %0 = spyreop.softplus %x beta 0.0 threshold 1.0 : f16
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{operand #0 must be 16-bit float or IBM df16 float, but got 'f32'}}
  %0 = spyreop.gelu %x : f32
  return
}

// -----

func.func @f(%x: i64) {
  // expected-error@+1 {{operand #0 must be 16-bit float or IBM df16 float or 32-bit float, but got 'i64'}}
  %0, %1 = spyreop.exx2 %x : i64
  return
}

// -----

func.func @f(%x: i32) {
  // expected-error@+1 {{operand #0 must be 16-bit float or IBM df16 float or 32-bit float, but got 'i32'}}
  %0 = spyreop.layernormnorm %x squares %x scale %x weight %x bias %x : i32
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+1 {{result #0 must be A pair of df16 floats held as one value or A pair of 16-bit floats held as one value or A pair of 32-bit floats held as one value, but got 'f32'}}
  %0 = spyreop.exx2_fused %x : f32 -> f32
  return
}

// -----

func.func @f(%x: f32) {
  // expected-error@+2 {{inferred type(s) '!spyreop.fp32_fused' are incompatible with return type(s) of operation '!spyreop.fp16_fused'}}
  // expected-error@+1 {{failed to infer returned types}}
  %0 = spyreop.exx2_zeromean_fused %x : f32 -> !spyreop.fp16_fused
  return
}

// -----

func.func @f(%x: !spyreop.df16_fused) {
  // expected-error@+2 {{inferred type(s) '!spyreop.df16' are incompatible with return type(s) of operation 'f32'}}
  // expected-error@+1 {{failed to infer returned types}}
  %0 = spyreop.layernormscale_fused %x : !spyreop.df16_fused -> f32
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{result #0 must be 16-bit float or 32-bit float, but got 'i8'}}
  %0 = spyreop.constant 3 : i8
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{result #0 must be 16-bit float or 32-bit float, but got 'tensor<2xf32>'}}
  %0 = spyreop.constant dense<1.0> : tensor<2xf32>
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'spyreop.constant' op requires attribute 'value'}}
  %0 = "spyreop.constant"() : () -> f32
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{failed to verify that all of {value, result} have same type}}
  %0 = "spyreop.constant"() {value = 1.0 : f16} : () -> f32
  return
}

// -----

func.func @f(%x: f16) {
  // expected-error@+1 {{requires zero operands}}
  %0 = "spyreop.constant"(%x) {value = 1.0 : f16} : (f16) -> f16
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{requires one result}}
  "spyreop.constant"() {value = 1.0 : f16} : () -> ()
  return
}

// -----

func.func @f(%x: f16) {
  // expected-error@+1 {{expected one of: equal, notequal, greaterthan, greaterequal, lesserthan, lesserequal}}
  %0 = spyreop.compare <less> %x, %x : f16
  return
}

// -----

func.func @f(%x: i32, %y: i64) {
  // expected-error@+1 {{expected 'i32' but got 'i64'}}
  %0 = "spyreop.addi32toi32"(%x, %y) : (i32, i64) -> i32
  return
}

// -----

func.func @f(%i: i32) {
  // expected-error@+1 {{expects base and stride either as two operands or as two attributes}}
  %0 = spyreop.idx32toaddr %i base 4 stride %i
  return
}

// -----

func.func @f(%t: tensor<64xf16>) {
  // expected-error@+1 {{expects a result of the operand's type 'tensor<64xf16>', but got 'tensor<32xf16>'}}
  %0 = spyreop.slice_reduction %t {reduction_kind = #spyreop.reduction_kind<add>, reduction_scope = #spyreop.reduction_scope<in_slice>} : tensor<64xf16> -> tensor<32xf16>
  return
}

// -----

func.func @f(%t: tensor<64xf16>) {
  // expected-error@+1 {{requires attribute 'reduction_scope'}}
  %0 = spyreop.slice_reduction %t {reduction_kind = #spyreop.reduction_kind<add>} : tensor<64xf16> -> tensor<64xf16>
  return
}
