// RUN: ktir-opt %s --ktir-verify-level --split-input-file --verify-diagnostics -o /dev/null

// The module.

// expected-error@+1 {{'builtin.module' op expects 'ktir.level' to be one of logical, flat, laid-out, divided, tiled, allocated, but has no such attribute}}
module {
}

// -----

// expected-error@+1 {{expects 'ktir.level' to be one of logical, flat, laid-out, divided, tiled, allocated, spyre, but got "final"}}
module attributes {ktir.level = "final"} {
}

// -----

// expected-error@+1 {{expects one entry function, without 'ktir.rows', but has 'f', 'g'}}
module attributes {ktir.level = "logical"} {
  func.func @f() { return }
  func.func @g() { return }
}

// -----

// expected-error@+1 {{expects one entry function, without 'ktir.rows', but has none}}
module attributes {ktir.level = "laid-out"} {
  func.func @f() attributes {ktir.rows = array<i64: 4>} { return }
}

// -----

// expected-error@+1 {{expects the entry function to call every kernel, but it does not call 'g'}}
module attributes {ktir.level = "laid-out"} {
  func.func @f() { return }
  // expected-note@+1 {{this one}}
  func.func @g() attributes {ktir.rows = array<i64: 4>} { return }
}

// -----

// Logical.

module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{'func.func' op has 'grid', an attribute of the divided, tiled and allocated levels, in a module at level 'logical'}}
  func.func @f() attributes {grid = [4]} { return }
}

// -----

module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{expects argument #0 to be a base address of type 'index', but got 'f16'}}
  func.func @f(%x: f16) { return }
}

// -----

module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{expects 'ktir.role' of argument #0 to be one of input, output, input_output, pool, iota, shared, but got "scratch"}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "scratch"}) { return }
}

// -----

module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{expects argument #0 to have an attribute 'ktir.type'}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "input", ktir.type = tensor<2xf16>}) { return }
}

// -----

#id = affine_map<(d0) -> (d0)>
#to0 = affine_map<(d0) -> ()>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#even = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0, d0 mod 2 == 0)>
#four = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#two = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#some = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4xf16>}) {
    // expected-error@+1 {{'ktdp.get_compute_tile_id' op is no part of the logical level, only of: divided, tiled, allocated}}
    %t = ktdp.get_compute_tile_id : index
    // expected-error@+1 {{expects tensors without an encoding, but got 'tensor<4xf16, 1 : i64>'}}
    %e = tensor.empty() : tensor<4xf16, 1>
    // expected-error@+1 {{expects tensors of static shape, but got 'tensor<?xf16>'}}
    %d = tensor.empty(%t) : tensor<?xf16>
    // expected-error@+1 {{expects memory_space 'global' above the allocated level, but got 'ct_local'}}
    %0 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #four, memory_space = #ktdp.memory_space<ct_local>} : memref<4xf16>
    // expected-error@+1 {{expects a view with static sizes and strides that is not masked}}
    %1 = ktdp.construct_memory_view %x, sizes: [%t], strides: [1] {coordinate_set = #some, masked, memory_space = #ktdp.memory_space<global>} : memref<?xf16>
    // expected-error@+1 {{expects an offset that is an argument of the function, or 'arith.addi' of one and a constant}}
    %2 = ktdp.construct_memory_view %t, sizes: [4], strides: [1] {coordinate_set = #four, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %3 = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #four, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    // expected-error@+1 {{expects a tile of the whole view 'memref<4xf16>', but got [2]}}
    %4 = ktdp.construct_access_tile %3[0] {access_tile_order = #id, access_tile_set = #two} : memref<4xf16> -> !ktdp.access_tile<2xindex>
    // expected-error@+1 {{expects a tile of the whole view 'memref<4xf16>'}}
    %5 = ktdp.construct_access_tile %3[%t] {access_tile_order = #id, access_tile_set = #four} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    // expected-error@+1 {{expects a set that is the box of the whole view 'memref<4xf16>', but got affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0, d0 mod 2 == 0)>}}
    %evens = ktdp.construct_access_tile %3[0] {access_tile_order = #id, access_tile_set = #even} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    %a = tensor.empty() : tensor<4xf16>
    %z = tensor.empty() : tensor<f16>
    %left = tensor.empty() : tensor<4x4xf16>
    %five = arith.constant dense<5.0> : tensor<4x4xf32>
    %m = linalg.matmul ins(%left, %left : tensor<4x4xf16>, tensor<4x4xf16>) outs(%five : tensor<4x4xf32>) -> tensor<4x4xf32>
    %zero = arith.constant 0.0 : f32
    %zeros = linalg.fill ins(%zero : f32) outs(%five : tensor<4x4xf32>) -> tensor<4x4xf32>
    %n = linalg.matmul ins(%left, %left : tensor<4x4xf16>, tensor<4x4xf16>) outs(%zeros : tensor<4x4xf32>) -> tensor<4x4xf32>
    %some_row = arith.constant dense<5.0> : tensor<4xf32>
    %most = linalg.generic {indexing_maps = [#id2, #rows], iterator_types = ["parallel", "reduction"]} ins(%m : tensor<4x4xf32>) outs(%some_row : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %more = arith.maximumf %in, %out : f32
      linalg.yield %more : f32
    } -> tensor<4xf32>
    // expected-error@+1 {{'linalg.generic' op expects a sum to accumulate in f32, but got 'tensor<f16>'}}
    %s = linalg.generic {indexing_maps = [#id, #to0], iterator_types = ["reduction"]} ins(%a : tensor<4xf16>) outs(%z : tensor<f16>) {
    ^bb0(%in: f16, %out: f16):
      %6 = arith.addf %out, %in : f16
      linalg.yield %6 : f16
    } -> tensor<f16>
    return
  }
}

// -----

#row = affine_map<(d0, d1) -> (d0, d1)>
#sum = affine_map<(d0, d1) -> (d1)>
#far = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
module attributes {ktir.level = "flat"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4xi64>}) {
    // expected-error@+1 {{'tensor.empty' op has dims of extent 1, which 'ktir-break-views' drops}}
    %a = tensor.empty() : tensor<1x4xf16>
    %b = tensor.empty() : tensor<4x5xf16>
    // expected-error@+1 {{'tensor.collapse_shape' op is no part of the flat level, only of: logical}}
    %c = tensor.collapse_shape %b [[0, 1]] : tensor<4x5xf16> into tensor<20xf16>
    // expected-error@+1 {{'math.sqrt' op is not supported on the flat level outside of a 'linalg.generic'}}
    %q = math.sqrt %b : tensor<4x5xf16>
    // expected-error@+1 {{'ktdp.construct_memory_view' op views elements of type i64, which have no stick layout; f16, bf16, f32 and i32 have}}
    %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1] {coordinate_set = #far, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
    %d = tensor.empty() : tensor<5xf16>
    // expected-error@+1 {{'linalg.generic' op expects a reduction by addf, maximumf, minimumf, addi, maxsi or minsi}}
    %r = linalg.generic {indexing_maps = [#row, #sum], iterator_types = ["reduction", "parallel"]} ins(%b : tensor<4x5xf16>) outs(%d : tensor<5xf16>) {
    ^bb0(%in: f16, %out: f16):
      %s = arith.subf %out, %in : f16
      linalg.yield %s : f16
    } -> tensor<5xf16>
    // expected-error@+1 {{'linalg.generic' op expects 'outs' without content or filled with -inf, which 'max' begins from}}
    %m = linalg.generic {indexing_maps = [#row, #sum], iterator_types = ["reduction", "parallel"]} ins(%b : tensor<4x5xf16>) outs(%r : tensor<5xf16>) {
    ^bb0(%in: f16, %out: f16):
      %more = arith.maximumf %in, %out : f16
      linalg.yield %more : f16
    } -> tensor<5xf16>
    return
  }
}

// -----

// Roles say what is done to memory.

#two = affine_set<(d0) : (d0 >= 0, -d0 + 1 >= 0)>
#id = affine_map<(d0) -> (d0)>
module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{expects argument #0, whose 'ktir.role' is 'input', not to be written; what is read and written is 'input_output'}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<2xf16>}) {
    %t = tensor.empty() : tensor<2xf16>
    %v = ktdp.construct_memory_view %x, sizes: [2], strides: [1] {coordinate_set = #two, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
    %a = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #two} : memref<2xf16> -> !ktdp.access_tile<2xindex>
    ktdp.store %t, %a : tensor<2xf16>, <2xindex>
    return
  }
}

// -----

module attributes {ktir.level = "logical"} {
  // expected-error@+1 {{expects argument #0, whose 'ktir.role' is 'output', to be written; what is only read is 'input'}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "output", ktir.type = tensor<2xf16>}) { return }
}

// -----

// Laid-out: functions.

#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "laid-out", ktir.hosts = [tensor<2x64xf32>]} {
  // expected-error@+1 {{expects the layout of argument #0 to hold the f32 of its tensor in 'ktir.hosts', but got f16}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.layout = #l, ktir.host = #ktir.host_view<arg = 0, offset = 0, size = [2, 64], strides = [64, 1]>}) { return }
}

// -----


#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "laid-out"} {
  // expected-error@+1 {{expects argument #0 to have an attribute 'ktir.layout'}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input"}) { return }
}

// -----

#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "laid-out"} {
  // expected-error@+1 {{expects argument #0 to have an attribute 'ktir.host'}}
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.layout = #l}) { return }
}

// -----

module attributes {ktir.level = "laid-out"} {
  // expected-error@+1 {{expects an entry function that only calls kernels, but it has 'tensor.empty'}}
  func.func @f() {
    call @k() : () -> ()
    // expected-note@+1 {{this 'tensor.empty' op}}
    %0 = tensor.empty() : tensor<4xf16>
    return
  }
  func.func @k() attributes {ktir.rows = array<i64: 4>} { return }
}

// -----

module attributes {ktir.level = "laid-out"} {
  func.func @f() {
    call @k() : () -> ()
    return
  }
  // expected-error@+1 {{has 'grid', an attribute of the divided, tiled and allocated levels, in a module at level 'laid-out'}}
  func.func @k() attributes {ktir.rows = array<i64: 4>, grid = [2]} { return }
}

// -----

module attributes {ktir.level = "laid-out"} {
  func.func @f() {
    call @k() : () -> ()
    call @m() : () -> ()
    return
  }
  // expected-error@+1 {{expects a kernel that calls nothing}}
  func.func @k() attributes {ktir.rows = array<i64: 4>} {
    // expected-note@+1 {{this 'func.call' op}}
    call @m() : () -> ()
    return
  }
  func.func @m() { return }
}

// -----

// Laid-out: tensors, views, maps, pads.

#l = #ktir.layout<size = [2, 100], device = [2, 2, 64], strides = [64, 100, 1], dtype = f16>
#w = #ktir.layout<size = [2, 100], device = [2, 2, 64], strides = [64, 100, 1], dtype = f32>
#c = #ktir.layout<size = [2, 1], device = [1, 2, 64], strides = [-1, 1, -1], dtype = f32>
#odd = #ktir.layout<size = [2, 32], device = [1, 2, 32], strides = [32, 32, 1], dtype = f16>
#h = #ktir.host_view<arg = 0, offset = 0, size = [2, 100], strides = [100, 1]>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#sum = affine_map<(d0, d1, d2) -> (d0, d1 mod 2, d2)>
#twice = affine_map<(d0, d1, d2) -> (d1, d1, d2)>
#in = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
#column = affine_map<(d0, d1, d2) -> (0, d0, 0)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#small = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "laid-out"} {
  func.func @f(%x: index {ktir.name = "x", ktir.role = "input", ktir.layout = #l, ktir.host = #h}) {
    // expected-error@+1 {{expects tensors with a '#ktir.layout', but got 'tensor<2x2x64xf16>'}}
    %0 = tensor.empty() : tensor<2x2x64xf16>
    // expected-error@+1 {{expects a tensor of its layout's shape and type, [2, 2, 64] of f16, but got 'tensor<2x3x64xf16}}
    %1 = tensor.empty() : tensor<2x3x64xf16, #l>
    // expected-error@+1 {{expects tensors of sticks of 64 lanes, [sticks, rows, 64], but got 'tensor<1x2x32xf16}}
    %2 = tensor.empty() : tensor<1x2x32xf16, #odd>
    // expected-error@+1 {{expects a view with the attribute 'ktir.layout'}}
    %3 = ktdp.construct_memory_view %x, sizes: [2, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<2x2x64xf16>
    // expected-error@+1 {{expects a view of its layout's shape [2, 2, 64], but got [1, 2, 64]}}
    %4 = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #small, ktir.layout = #l, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    %5 = tensor.empty() : tensor<2x2x64xf16, #l>
    %6 = tensor.empty() : tensor<2x2x64xf16, #l>
    // expected-error@+1 {{expects maps that are projected permutations plus constants, but got 'affine_map<(d0, d1, d2) -> (d0, d1 mod 2, d2)>'}}
    %7 = linalg.generic {indexing_maps = [#sum, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<2x2x64xf16, #l>) outs(%6 : tensor<2x2x64xf16, #l>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<2x2x64xf16, #l>
    // expected-error@+1 {{expects maps that name a loop once}}
    %8 = linalg.generic {indexing_maps = [#twice, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%5 : tensor<2x2x64xf16, #l>) outs(%6 : tensor<2x2x64xf16, #l>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<2x2x64xf16, #l>
    %9 = tensor.empty() : tensor<1x2x64xf32, #c>
    // expected-error@+1 {{expects lanes beyond the columns of its operands to be masked with the identity of 'max'}}
    %10 = linalg.generic {indexing_maps = [#in, #column], iterator_types = ["parallel", "reduction", "reduction"]} ins(%5 : tensor<2x2x64xf16, #l>) outs(%9 : tensor<1x2x64xf32, #c>) {
    ^bb0(%in: f16, %out: f32):
      %11 = arith.extf %in : f16 to f32
      %12 = arith.maximumf %out, %11 : f32
      linalg.yield %12 : f32
    } -> tensor<1x2x64xf32, #c>
    return
  }
}

// -----

// Laid-out: the first operand of a contraction.

#a = #ktir.layout<size = [2, 60], device = [1, 2, 64], strides = [64, 60, 1], dtype = f16>
#b = #ktir.layout<size = [60, 64], device = [1, 1, 64, 64], strides = [64, 4096, 64, 1], dtype = f16>
#r = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f32>
module attributes {ktir.level = "laid-out"} {
  func.func @f() {
    // expected-note@+1 {{the operand is defined here}}
    %0 = tensor.empty() : tensor<1x2x64xf16, #a>
    %1 = tensor.empty() : tensor<1x1x64x64xf16, #b>
    %2 = tensor.empty() : tensor<1x2x64xf32, #r>
    // expected-error@+1 {{expects the lanes of its first operand beyond its columns to be zero}}
    %3 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d4, d2)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%0, %1 : tensor<1x2x64xf16, #a>, tensor<1x1x64x64xf16, #b>) outs(%2 : tensor<1x2x64xf32, #r>) {
    ^bb0(%in: f16, %in_0: f16, %out: f32):
      %4 = arith.extf %in : f16 to f32
      %5 = arith.extf %in_0 : f16 to f32
      %6 = arith.mulf %4, %5 : f32
      %7 = arith.addf %out, %6 : f32
      linalg.yield %7 : f32
    } -> tensor<1x2x64xf32, #r>
    return
  }
}

// -----

// Divided: the division.

module attributes {ktir.level = "divided"} {
  func.func @f() {
    call @k0() : () -> ()
    call @k1() : () -> ()
    call @k3() : () -> ()
    call @k5() : () -> ()
    return
  }
  // expected-error@+1 {{expects equal parts of batch axis 0, but got 2 of 2 for 3}}
  func.func @k5() attributes {ktir.rows = array<i64: 3, 16>, grid = [2], ktir.work = #ktir.work<splits = [1, 2, 1, 1], tile = [1, 2, 16, 64]>} { return }
  // expected-error@+1 {{expects a kernel with the attribute 'grid'}}
  func.func @k0() attributes {ktir.rows = array<i64: 57>} { return }
  // expected-error@+1 {{expects a grid of as many tiles as 'ktir.work' has parts, but got [28] for splits [1, 29, 1]}}
  func.func @k1() attributes {ktir.rows = array<i64: 57>, grid = [28], ktir.work = #ktir.work<splits = [1, 29, 1], tile = [1, 2, 64]>} { return }
  // expected-error@+1 {{expects 29 parts of 3 rows to cover 57 rows with no part empty}}
  func.func @k3() attributes {ktir.rows = array<i64: 57>, grid = [29], ktir.work = #ktir.work<splits = [1, 29, 1], tile = [1, 3, 64]>} { return }
}

// -----

module attributes {ktir.level = "divided"} {
  func.func @main() {
    call @k4() : () -> ()
    return
  }
  // expected-error@+1 {{expects 'ktir.work' to divide sticks and rows [57] of 64 lanes, but got splits [1, 29], tile [1, 2]}}
  func.func @k4() attributes {ktir.rows = array<i64: 57>, grid = [29], ktir.work = #ktir.work<splits = [1, 29], tile = [1, 2]>} { return }
}

// -----

module attributes {ktir.level = "divided"} {
  func.func @main() {
    call @k2() : () -> ()
    return
  }
  // expected-error@+1 {{expects a grid of at most 32 tiles, but got [57]}}
  func.func @k2() attributes {ktir.rows = array<i64: 57>, grid = [57], ktir.work = #ktir.work<splits = [1, 57, 1], tile = [1, 1, 64]>} { return }
}

// -----

#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "divided"} {
  func.func @k(%x: index) {
    // expected-error@+1 {{has 'ktir.layout', an attribute of the laid-out level, in a module at level 'divided'}}
    %0 = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.layout = #l, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    return
  }
}

// -----

// Divided: views and tensors.

#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#some = affine_set<(d0, d1, d2)[s0] : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + s0 - 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "divided"} {
  func.func @f(%x: index {ktir.name = "pool0", ktir.role = "pool", ktir.layout = #l}) {
    call @k(%x) : (index) -> ()
    return
  }
  func.func @k(%x: index) attributes {ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %t = ktdp.get_compute_tile_id : index
    %0 = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    // expected-error@+1 {{expects a view with a dynamic size to be 'masked'}}
    %1 = ktdp.construct_memory_view %x, sizes: [1, %t, 64], strides: [128, 64, 1] {coordinate_set = #some, memory_space = #ktdp.memory_space<global>} : memref<1x?x64xf16>
    // expected-error@+1 {{expects a view with static strides}}
    %2 = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [%t, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    // expected-error@+1 {{expects tensors of sticks of 64 lanes, [sticks, rows, 64], but got 'tensor<2x64xf16>'}}
    %3 = tensor.empty() : tensor<2x64xf16>
    // expected-error@+1 {{expects tensors without an encoding}}
    %4 = tensor.empty() : tensor<1x2x64xf16, #l>
    %c1 = arith.constant 1 : index
    // expected-error@+2 {{'scf.yield' op is no part of the divided level, only of: tiled, allocated}}
    // expected-error@+1 {{'scf.for' op is no part of the divided level, only of: tiled, allocated}}
    scf.for %i = %t to %c1 step %c1 {
    }
    return
  }
}

// -----

// Tiled.

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#a = affine_map<(d0, d1, d2) -> (0, d0, d2)>
#b = affine_map<(d0, d1, d2) -> (0, d2, d1)>
#c = affine_map<(d0, d1, d2) -> (0, d0, d1)>
module attributes {ktir.level = "tiled"} {
  func.func @f() {
    call @k() : () -> ()
    return
  }
  func.func @k() attributes {ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %t = ktdp.get_compute_tile_id : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    // expected-error@+1 {{expects a constant upper bound, so that every core makes as many trips}}
    scf.for %i = %c0 to %t step %c1 {
    }
    // expected-error@+1 {{expects blocks of one batch position, [sticks, rows, 64], but got 'tensor<1x4x2x64xf16>'}}
    %many = tensor.empty() : tensor<1x4x2x64xf16>
    // expected-error@+1 {{expects blocks of an even number of rows, but got 'tensor<1x3x64xf16>'}}
    %0 = tensor.empty() : tensor<1x3x64xf16>
    %1 = tensor.empty() : tensor<1x2x64xf16>
    // expected-error@+1 {{carries 'tensor<1x2x64xf16>', which is neither the accumulator of a contraction nor filled slice by slice, nor a running value}}
    %2 = scf.for %i = %c0 to %c1 step %c1 iter_args(%s = %1) -> (tensor<1x2x64xf16>) {
      %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%s : tensor<1x2x64xf16>) outs(%1 : tensor<1x2x64xf16>) {
      ^bb0(%in: f16, %out: f16):
        linalg.yield %in : f16
      } -> tensor<1x2x64xf16>
      scf.yield %3 : tensor<1x2x64xf16>
    }
    %4 = tensor.empty() : tensor<2x64x64xf16>
    %5 = tensor.empty() : tensor<1x2x64xf32>
    // expected-error@+1 {{expects a contraction with one block of 64 x 64 per trip, but got 'tensor<2x64x64xf16>'}}
    %6 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1, %4 : tensor<1x2x64xf16>, tensor<2x64x64xf16>) outs(%5 : tensor<1x2x64xf32>) {
    ^bb0(%in: f16, %in_0: f16, %out: f32):
      %7 = arith.extf %in : f16 to f32
      %8 = arith.extf %in_0 : f16 to f32
      %9 = arith.mulf %7, %8 : f32
      %10 = arith.addf %out, %9 : f32
      linalg.yield %10 : f32
    } -> tensor<1x2x64xf32>
    // expected-error@+1 {{'tensor.pad' op is no part of the tiled level}}
    %11 = tensor.pad %1 low[0, 0, 0] high[0, 2, 0] {
    ^bb0(%i: index, %j: index, %k: index):
      %z = arith.constant 0.0 : f16
      // expected-error@+1 {{'tensor.yield' op is no part of the tiled level}}
      tensor.yield %z : f16
    } : tensor<1x2x64xf16> to tensor<1x4x64xf16>
    return
  }
}

// -----

// Allocated: the size of what a kernel uses.

module attributes {ktir.level = "allocated"} {
  func.func @f() {
    call @k0() : () -> ()
    call @k1() : () -> ()
    return
  }
  // expected-error@+1 {{expects a kernel with the attribute 'ktir.lx_bytes'}}
  func.func @k0() attributes {ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} { return }
  // expected-error@+1 {{uses 1625472 bytes of the scratchpad, but there are 1625344}}
  func.func @k1() attributes {ktir.lx_bytes = 1625472 : i64, ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} { return }
}

// -----

// Allocated: addresses.

#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#some = affine_set<(d0, d1, d2)[s0] : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + s0 - 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "allocated"} {
  func.func @f() {
    call @k() : () -> ()
    return
  }
  func.func @k() attributes {ktir.lx_bytes = 512 : i64, ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %t = ktdp.get_compute_tile_id : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %c128 = arith.constant 128 : index
    %c192 = arith.constant 192 : index
    // expected-error@+1 {{expects a constant address in the scratchpad, or steps of loops from one, or 'ktir.rotate'}}
    %0 = ktdp.construct_memory_view %t, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    // expected-error@+1 {{expects an address at a multiple of 128 bytes, but got 64}}
    %1 = ktdp.construct_memory_view %c32, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    // expected-error@+1 {{lies at bytes 384 to 640 of the scratchpad, but the kernel uses 512}}
    %2 = ktdp.construct_memory_view %c192, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    // expected-error@+1 {{expects a view of the scratchpad to have static sizes and strides}}
    %3 = ktdp.construct_memory_view %c64, sizes: [1, %t, 64], strides: [128, 64, 1] {coordinate_set = #some, masked, memory_space = #ktdp.memory_space<ct_local>} : memref<1x?x64xf16>
    // expected-error@+1 {{expects a rotating address, constant + (counters rem nbuf) * slot}}
    %4 = ktdp.construct_memory_view %t, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.rotate = #ktir.rotate<nbuf = 2, stride = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %phase = arith.remui %t, %c2 : index
    %step = arith.muli %phase, %c128 : index
    %at = arith.addi %c64, %step : index
    // expected-error@+1 {{expects an address that rotates over 3 slots of 256 bytes, as 'ktir.rotate' says, but it rotates over 2 of 256}}
    %5 = ktdp.construct_memory_view %at, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.rotate = #ktir.rotate<nbuf = 3, stride = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    // expected-error@+1 {{lies at bytes 128 to 640 of the scratchpad, but the kernel uses 512}}
    %6 = ktdp.construct_memory_view %at, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.rotate = #ktir.rotate<nbuf = 2, stride = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %close = arith.muli %phase, %c64 : index
    %near = arith.addi %close, %c64 : index
    // expected-error@+1 {{expects slots of at least the view's 256 bytes, but 'ktir.rotate' says 128}}
    %7 = ktdp.construct_memory_view %near, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.rotate = #ktir.rotate<nbuf = 2, stride = 128>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %trip = %c0 to %c2 step %c1 {
      %walk = arith.muli %trip, %c128 : index
      %turn = arith.addi %c0, %step : index
      %inner = arith.addi %turn, %walk : index
      // expected-error@+1 {{expects slots of at least the view's 512 bytes, but 'ktir.rotate' says 256}}
      %8 = ktdp.construct_memory_view %inner, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, ktir.rotate = #ktir.rotate<nbuf = 2, stride = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    }
    return
  }
}

// -----

// Allocated: what moves where.

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "allocated"} {
  func.func @f(%x: index {ktir.name = "pool0", ktir.role = "pool", ktir.layout = #l}) {
    call @k(%x) : (index) -> ()
    return
  }
  func.func @k(%x: index) attributes {ktir.lx_bytes = 512 : i64, ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    %0 = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    %1 = ktdp.construct_access_tile %0[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %2 = ktdp.construct_memory_view %c0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %3 = ktdp.construct_access_tile %2[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    // expected-error@+2 {{expects what is loaded from global memory to be stored to the scratchpad only}}
    // expected-note@+1 {{the operand is defined here}}
    %4 = ktdp.load %1 : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %4, %3 : tensor<1x2x64xf16>, <1x2x64xindex>
    // expected-error@+2 {{expects a store to global memory of what was loaded from the scratchpad}}
    // expected-note@+1 {{this 'ktdp.store' op}}
    ktdp.store %4, %1 : tensor<1x2x64xf16>, <1x2x64xindex>
    // expected-error@+2 {{expects what is loaded from ct_local memory to be read by a compute op, sent to a core or stored to global memory only}}
    // expected-note@+1 {{the operand is defined here}}
    %5 = ktdp.load %3 : <1x2x64xindex> -> tensor<1x2x64xf16>
    // expected-error@+2 {{expects a store to the scratchpad of a compute op's result, a fill, a load from global memory or what a core has sent}}
    // expected-note@+1 {{this 'ktdp.store' op}}
    ktdp.store %5, %3 : tensor<1x2x64xf16>, <1x2x64xindex>
    %6 = ktdp.load %3 : <1x2x64xindex> -> tensor<1x2x64xf16>
    %7 = tensor.empty() : tensor<1x2x64xf16>
    // expected-error@+2 {{expects its result to be stored to the scratchpad or carried as an accumulator}}
    // expected-note@+1 {{the operand is defined here}}
    %8 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%6 : tensor<1x2x64xf16>) outs(%7 : tensor<1x2x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x2x64xf16>
    // expected-error@+2 {{expects operand #0 to be loaded from the scratchpad or to be an accumulator}}
    // expected-note@+1 {{this 'linalg.generic' op}}
    %9 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%8 : tensor<1x2x64xf16>) outs(%7 : tensor<1x2x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      linalg.yield %in : f16
    } -> tensor<1x2x64xf16>
    // expected-error@+1 {{carries 'tensor<1x2x64xf16>' without 'ktir.acc', which says whose accumulator it is}}
    %10 = scf.for %i = %c0 to %c2 step %c1 iter_args(%s = %7) -> (tensor<1x2x64xf16>) {
      scf.yield %s : tensor<1x2x64xf16>
    }
    // expected-error@+1 {{has 'ktir.acc', but carries no tensor}}
    scf.for %i = %c0 to %c2 step %c1 {
    } {ktir.acc = #ktir.acc<PT>}
    return
  }
}

// -----

// Allocated: a buffer that is read before it is written, one that is overwritten meanwhile, one that a later trip finds overwritten.

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "allocated"} {
  func.func @f(%x: index {ktir.name = "pool0", ktir.role = "pool", ktir.layout = #l}) {
    call @k(%x) : (index) -> ()
    return
  }
  func.func @k(%x: index) attributes {ktir.lx_bytes = 4096 : i64, ktir.rows = array<i64: 2>, grid = [1], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c64 = arith.constant 64 : index
    %c512 = arith.constant 512 : index
    %c1024 = arith.constant 1024 : index
    %g = ktdp.construct_memory_view %x, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    %gt = ktdp.construct_access_tile %g[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %never = ktdp.construct_memory_view %c1024, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %nevert = ktdp.construct_access_tile %never[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    // expected-error@+1 {{'ktdp.load' op reads a place of the scratchpad that nothing has been stored to}}
    %0 = ktdp.load %nevert : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %0, %gt : tensor<1x2x64xf16>, <1x2x64xindex>
    %a = ktdp.construct_memory_view %c0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %at = ktdp.construct_access_tile %a[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %b = ktdp.construct_memory_view %c64, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %bt = ktdp.construct_access_tile %b[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %1 = ktdp.load %gt : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %1, %at : tensor<1x2x64xf16>, <1x2x64xindex>
    %2 = ktdp.load %gt : <1x2x64xindex> -> tensor<1x2x64xf16>
    // expected-note@+1 {{by this store}}
    ktdp.store %2, %bt : tensor<1x2x64xf16>, <1x2x64xindex>
    // expected-error@+1 {{'ktdp.load' op reads a place of the scratchpad that has been overwritten meanwhile}}
    %3 = ktdp.load %at : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %3, %gt : tensor<1x2x64xf16>, <1x2x64xindex>
    %again = ktdp.construct_memory_view %c64, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %againt = ktdp.construct_access_tile %again[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %4 = ktdp.load %againt : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %4, %gt : tensor<1x2x64xf16>, <1x2x64xindex>
    %c = ktdp.construct_memory_view %c512, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %ct = ktdp.construct_access_tile %c[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %d = ktdp.construct_memory_view %c512, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %dt = ktdp.construct_access_tile %d[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    %5 = ktdp.load %gt : <1x2x64xindex> -> tensor<1x2x64xf16>
    ktdp.store %5, %ct : tensor<1x2x64xf16>, <1x2x64xindex>
    scf.for %i = %c0 to %c2 step %c1 {
      // expected-error@+1 {{reads a place of the scratchpad that has been overwritten meanwhile}}
      %6 = ktdp.load %ct : <1x2x64xindex> -> tensor<1x2x64xf16>
      ktdp.store %6, %gt : tensor<1x2x64xf16>, <1x2x64xindex>
      %7 = ktdp.load %gt : <1x2x64xindex> -> tensor<1x2x64xf16>
      // expected-note@+1 {{by this store}}
      ktdp.store %7, %dt : tensor<1x2x64xf16>, <1x2x64xindex>
    }
    return
  }
}

// -----

// Allocated: what cores send each other.

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#first = affine_set<(i)[g] : (i - g * 2 == 0)>
#second = affine_set<(i)[g] : (i - g * 2 - 1 == 0)>
#one = affine_set<(g) : (g >= 0, -g >= 0)>
#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "allocated"} {
  func.func @f(%x: index {ktir.name = "pool0", ktir.role = "pool", ktir.layout = #l}) {
    call @k(%x) : (index) -> ()
    return
  }
  // expected-error@+1 {{expects a grid of as many tiles as 'ktir.work' has parts, but got [2] for splits [1, 1, 1] and 3 partial sums each}}
  func.func @k(%x: index) attributes {ktir.lx_bytes = 512 : i64, ktir.rows = array<i64: 2>, ktir.sums = 3, grid = [2], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    return
  }
}

// -----

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#set = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#first = affine_set<(i)[g] : (i - g * 2 == 0)>
#second = affine_set<(i)[g] : (i - g * 2 - 1 == 0)>
#one = affine_set<(g) : (g >= 0, -g >= 0)>
#l = #ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>
module attributes {ktir.level = "allocated"} {
  func.func @f(%x: index {ktir.name = "pool0", ktir.role = "pool", ktir.layout = #l}) {
    call @k(%x) : (index) -> ()
    return
  }
  func.func @k(%x: index) attributes {ktir.lx_bytes = 512 : i64, ktir.rows = array<i64: 2>, ktir.sums = 2, grid = [2], ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %c0 = arith.constant 0 : index
    %2 = ktdp.construct_memory_view %c0, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %3 = ktdp.construct_access_tile %2[0, 0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<1x2x64xf16> -> !ktdp.access_tile<1x2x64xindex>
    // expected-note@+1 {{the operand is defined here}}
    %4 = tensor.empty() : tensor<1x2x64xf16>
    // expected-error@+1 {{expects to send what was loaded from the scratchpad}}
    %f = ktdp.inter_tile_produce producer_tiles_per_group = #second -> <(tensor<1x2x64xf16>), groups = #one> {
    ^bb0(%g: index):
      ktdp.yield_partial %4 : tensor<1x2x64xf16>
    }
    // expected-error@+1 {{expects one tensor, which is stored to one place of the scratchpad}}
    %r = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = #first : <(tensor<1x2x64xf16>), groups = #one> -> tensor<1x2x64xf16>
    return
  }
}
