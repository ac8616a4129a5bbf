// RUN: ktir-opt %s --split-input-file --verify-diagnostics

func.func @f() {
  // expected-error@+1 {{'ktdp.get_compute_tile_id' op must return at least one index}}
  "ktdp.get_compute_tile_id"() : () -> ()
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'ktdp.get_compute_tile_id' op result #0 ('ids') must be index, but got 'i32'}}
  %0 = ktdp.get_compute_tile_id : i32
  return
}

// -----

func.func @f(%x: index) {
  // expected-error@+1 {{'ktdp.construct_memory_view' op requires attribute 'memory_space'}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0)>} : memref<4xf16>
  return
}

// -----

func.func @f(%x: index) {
  // expected-error@+1 {{'ktdp.construct_memory_view' op attribute 'coordinate_set' must be an integer set, but got 4 : i64}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = 4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

func.func @f(%x: index) {
  // expected-error@+1 {{attribute 'memory_space' must be #ktdp.memory_space or #ktdp.spyre_memory_space, but got #ktir.acc<PT>}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0)>, memory_space = #ktir.acc<PT>} : memref<4xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{static_sizes and static_strides must have equal length, but got 1 and 2}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{result memref rank does not match sizes/strides length, but got 'memref<4x1xf16>' for 1 sizes}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x1xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{result #0 ('result') must be ranked memref, but got 'memref<*xf16>'}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<*xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects size 4 in dim 0 of the result, but got 'memref<5xf16>'}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects non-negative sizes, but got -4}}
  %0 = ktdp.construct_memory_view %x, sizes: [-4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  return
}

// -----

#box = affine_set<(d0, d1) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects a coordinate set of 1 dims, but got 2}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

#box = affine_set<(d0)[s0, s1] : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects a coordinate set with one symbol per dynamic size, but got 2 for 1}}
  %0 = ktdp.construct_memory_view %x, sizes: [%x], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{expects the memory space of its result type to be the one in its attribute}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf16, #ktdp.memory_space<ct_local>>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{can only be masked with a dynamic size}}
  %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0)>
func.func @f(%x: index) {
  // expected-error@+1 {{number of dynamic size operands does not match kDynamic entries in static_sizes}}
  %0 = "ktdp.construct_memory_view"(%x) {coordinate_set = #box, memory_space = #ktdp.memory_space<global>, operandSegmentSizes = array<i32: 1, 0, 0>, static_sizes = array<i64: -9223372036854775808>, static_strides = array<i64: 1>} : (index) -> memref<?xf16>
  return
}

// -----

func.func @f(%x: index) {
  // expected-error@+1 {{requires attribute 'operandSegmentSizes'}}
  %0 = "ktdp.construct_memory_view"(%x) {} : (index) -> memref<?xf16>
  return
}

// -----

func.func @f(%x: index) {
  // expected-error@+1 {{has a wrong number of operands: 1}}
  %0 = "ktdp.construct_memory_view"(%x) {operandSegmentSizes = array<i32: 1, 1, 0>} : (index) -> memref<?xf16>
  return
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8x8xf16>) {
  // expected-error@+1 {{access_tile_set dimensions (1) must match base_map dims (2)}}
  %0 = ktdp.construct_access_tile %v[0, 0] {access_tile_order = #id, access_tile_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<4x4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 >= 0)>
func.func @f(%v: memref<8xf16>) {
  // expected-error@+1 {{access_tile_set has 1 symbols but got 0 symbol operands}}
  %0 = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8xf16>) {
  // expected-error@+1 {{access_tile_order must have equal number of inputs (1) and outputs (2)}}
  %0 = ktdp.construct_access_tile %v[0] {access_tile_order = affine_map<(d0) -> (d0, d0)>, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 3 >= 0)>
func.func @f(%v: memref<8x8xf16>) {
  // expected-warning@+1 {{expects an order that is a permutation, but got '(d0, d1) -> (d0, d0)'}}
  %0 = ktdp.construct_access_tile %v[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d0)>, access_tile_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<4x4xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8x8xf16>) {
  // expected-error@+1 {{expects one index per dim of the base, but got 1 for 'memref<8x8xf16>'}}
  %0 = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<8x8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

#swap = affine_map<(d0, d1, d2) -> (d2, d0, d1)>
#box = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 3 >= 0)>
func.func @f(%v: memref<8x8x8xf16>) {
  %0 = ktdp.construct_access_tile %v[0, 0, 0] {access_tile_order = #swap, access_tile_set = #box} : memref<8x8x8xf16> -> !ktdp.access_tile<4x2x3xindex>
  // expected-warning@+1 {{expects a tile of shape [4, 2, 3], the extents of its set in its order, but got [3, 4, 2]}}
  %1 = ktdp.construct_access_tile %v[0, 0, 0] {access_tile_order = #swap, access_tile_set = #box} : memref<8x8x8xf16> -> !ktdp.access_tile<3x4x2xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 - 2 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8xf16>, %masked: memref<?xf16>, %i: index) {
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %0 = ktdp.construct_access_tile %v[%c4] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<2xindex>
  %1 = ktdp.construct_access_tile %masked[%c5] {access_tile_order = #id, access_tile_set = #box} : memref<?xf16> -> !ktdp.access_tile<2xindex>
  %2 = ktdp.construct_access_tile %v[%i] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<2xindex>
  // expected-error@+1 {{reaches coordinates 7 to 8 in dim 0, beyond the base of size 8}}
  %3 = ktdp.construct_access_tile %v[%c5] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<2xindex>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8xf16>) {
  // expected-error@+1 {{reaches coordinates -1 to 2 in dim 0, beyond the base of size 8}}
  %0 = ktdp.construct_access_tile %v[-1] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  return
}

// -----

func.func @f(%v: i32, %i: index) {
  // expected-error@+1 {{operand #0 ('base') must be ranked memref or ranked tensor, but got 'i32'}}
  %0 = ktdp.construct_access_tile %v[%i] {} : i32 -> !ktdp.access_tile<4xindex>
  return
}

// -----

func.func @f(%t: !ktdp.access_tile<4x2xindex>) {
  // expected-error@+1 {{'ktdp.load' op access tile shape must match result tensor shape, but got 'tensor<2x4xf16>' for a tile of shape [4, 2]}}
  %0 = ktdp.load %t : <4x2xindex> -> tensor<2x4xf16>
  return
}

// -----

func.func @f(%t: !ktdp.access_tile<4xindex>, %x: tensor<?xf16>) {
  // expected-error@+1 {{'ktdp.store' op data tile shape must match access tile shape, but got 'tensor<?xf16>' for a tile of shape [4]}}
  ktdp.store %x, %t : tensor<?xf16>, <4xindex>
  return
}

// -----

func.func @f(%t: f16) {
  // expected-error@+1 {{'ktdp.load' op operand #0 ('tile') must be !ktdp.access_tile, but got 'f16'}}
  %0 = ktdp.load %t : f16 -> tensor<4xf16>
  return
}

// -----

#id = affine_map<(d0) -> (d0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
func.func @f(%v: memref<8xf16>) {
  %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<8xf16> -> !ktdp.access_tile<4xindex>
  // expected-error@+1 {{expects a result of element type 'f16', that of the view, but got 'f32'}}
  %0 = ktdp.load %t : <4xindex> -> tensor<4xf32>
  return
}
