// RUN: ktir-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{core affinity is only valid for LX or L0 memory spaces, but got memory space 'HBM' with core = 1}}
func.func private @f(memref<4xf16, #ktdp.spyre_memory_space<HBM, core = 1>>)

// -----

// expected-error@+1 {{core affinity must be non-negative, but got: -2}}
func.func private @f(memref<4xf16, #ktdp.spyre_memory_space<LX, core = -2>>)

// -----

// expected-error@+1 {{expected one of: unspecified, LX, HBM, L0}}
func.func private @f(memref<4xf16, #ktdp.spyre_memory_space<DDR>>)

// -----

#box = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects a coordinate set of extents [4], the view's sizes, but got [5]}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects the memory space of its result type to be the one in its attribute}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16, #ktdp.spyre_memory_space<LX, core = 0>>
  return
}

// -----

func.func @f(%a: memref<4xf16>, %b: memref<4xf32>) {
  // expected-error@+1 {{all input memrefs must have the same element type as the result, but got 'memref<4xf32>' for 'memref<8xf16>'}}
  %0 = ktdp.construct_distributed_memory_view(%a, %b : memref<4xf16>, memref<4xf32>) : memref<8xf16>
  return
}

// -----

func.func @f(%a: memref<4xf16>) {
  // expected-error@+1 {{all input memrefs must have the same rank as the result, but got 'memref<4xf16>' for 'memref<4x1xf16>'}}
  %0 = ktdp.construct_distributed_memory_view(%a : memref<4xf16>) : memref<4x1xf16>
  return
}

// -----

func.func @f(%a: tensor<4xf16>) {
  // expected-error@+1 {{operand #0 ('partitions') must be ranked memref, but got 'tensor<4xf16>'}}
  %0 = ktdp.construct_distributed_memory_view(%a : tensor<4xf16>) : memref<4xf16>
  return
}

// -----

#a = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#b = affine_set<(d0) : (d0 - 3 >= 0, -d0 + 6 >= 0)>
func.func @f(%x: index) {
  %a = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #a, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %b = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #b, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  // expected-error@+1 {{expects partitions that are disjoint or replicas, but #0 and #2 own [0, 4) and [3, 7)}}
  %0 = ktdp.construct_distributed_memory_view(%a, %a, %b : memref<4xf16>, memref<4xf16>, memref<4xf16>) : memref<7xf16>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>, %y: index) {
  // expected-error@+1 {{expecting a comma between subscripts}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i) (%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
}

// -----

func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{unexpected token in subscript list, expected 'ind', '(', or ']'}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[view[%i]] {} : memref<8xf16> -> !ktdp.access_tile<4xindex>
}

// -----

func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{variable '%i' is given twice}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i, %i) %x[(%i)] {} : memref<8xf16> -> !ktdp.access_tile<4xindex>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{variables_space_set dimensions (1) must match variables_space_order inputs (2)}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 >= 0)>
func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{variables_space_set has 1 symbols but got 0 symbol operands}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8x8xf16>) {
  // expected-error@+1 {{number of subscripts (1) must match base rank (2)}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{direct subscript map for dimension 0 must produce exactly 1 result, but produces 2}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i, %i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>, %v: memref<8x8xi32>) {
  // expected-error@+1 {{indirect subscript map for dimension 0 produces 1 results, but indirect memref has rank 2}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[ind(%v[%i])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<8x8xi32> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{result type rank (2) must match variables_space_set dimensions (1)}}
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4x1xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>) {
  // expected-error@+1 {{number of intermediate variables (2) must match variables_space_set dimensions (1)}}
  %0 = "ktdp.construct_indirect_access_tile"(%x) ({
    ^bb0(%i: index, %j: index):
      "ktdp.region_terminator"() : () -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 0, 0>, per_dim_subscript_kinds = [false], per_dim_subscript_maps = [affine_map<(d0) -> (d0)>], variables_space_order = #id, variables_space_set = #box} : (memref<8xf16>) -> !ktdp.access_tile<4xindex>
  return
}

// -----

// What is provably outside of a base is an error, in direct subscripts; index views are another implementation's to overrun.
#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>, %v: memref<8xi32>, %masked: memref<?xf16>) {
  %c5 = arith.constant 5 : index
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i * 2 + 1)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  %1 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %masked[(%i + %c5)] {variables_space_order = #id, variables_space_set = #box} : memref<?xf16> -> !ktdp.access_tile<4xindex>
  %2 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i + %c5 - %i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  // expected-warning@+1 {{reaches indices 5 to 8 in dim 0, beyond the base of size 8}}
  %3 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[ind(%v[%i + %c5])] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16>, memref<8xi32> -> !ktdp.access_tile<4xindex>
  // expected-error@+1 {{reaches coordinates 5 to 8 in dim 0, beyond the base of size 8}}
  %4 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%c5 + %i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%x: memref<8xf16>, %t: tensor<4xf32>) {
  %0 = ktdp.construct_indirect_access_tile intermediate_variables(%i) %x[(%i)] {variables_space_order = #id, variables_space_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  // expected-error@+1 {{expects a value of element type 'f16', that of the view, but got 'f32'}}
  ktdp.store %t, %0 : tensor<4xf32>, <4xindex>
  return
}

// -----

// expected-error@+1 {{runtime_arg underlying type must be a builtin type (index, integer, or float), but got: tensor<4xf16>}}
func.func private @f(!ktdp.runtime_arg<tensor<4xf16>>)

// -----

// expected-error@+1 {{runtime_arg granularity must be positive, but got: 0}}
func.func private @f(!ktdp.runtime_arg<i8, granularity=0>)

// -----

// expected-error@+1 {{runtime_arg upperbound must be positive, but got: -7}}
func.func private @f(!ktdp.runtime_arg<i8, upperbound=-7>)

// -----

// expected-error@+1 {{duplicate parameter 'granularity'}}
func.func private @f(!ktdp.runtime_arg<i8, granularity=1, granularity=2>)

// -----

func.func @f(%a: !ktdp.runtime_arg<i32>) {
  // expected-error@+1 {{'ktdp.runtime_arg_extract' op result type ('i64') must match runtime_arg underlying type ('i32') when extracting value}}
  %0 = ktdp.runtime_arg_extract value from %a : <i32> -> i64
  return
}

// -----

func.func @f(%a: !ktdp.runtime_arg<i32, upperbound=4>) {
  // expected-error@+1 {{cannot extract granularity from runtime_arg that doesn't have one}}
  %0 = ktdp.runtime_arg_extract granularity from %a : <i32, upperbound=4> -> index
  return
}

// -----

func.func @f(%a: !ktdp.runtime_arg<i32, upperbound=4>) {
  // expected-error@+1 {{result type must be index when extracting upperbound, but got 'i32'}}
  %0 = ktdp.runtime_arg_extract upperbound from %a : <i32, upperbound=4> -> i32
  return
}

// -----

func.func @f(%a: !ktdp.runtime_arg<i32>) {
  // expected-error@+1 {{expected one of: value, granularity, upperbound}}
  %0 = ktdp.runtime_arg_extract size from %a : <i32> -> i32
  return
}
