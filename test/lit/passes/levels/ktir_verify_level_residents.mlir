// RUN: ktir-opt %s --split-input-file --ktir-verify-level --verify-diagnostics

// What stays in the scratchpad between kernels lies inside of it, each tensor at a place of its own, and is shown by kernels that list it.

module attributes {ktir.level = "tiled"} {
  func.func @entry() {
    call @kernel() : () -> ()
    return
  }
  // expected-error@+1 {{keeps 'a' and 'b' at the same bytes of the scratchpad, from 512 on}}
  func.func @kernel() attributes {grid = [1], ktir.residents = [#ktir.resident<name = a, address = 256, bytes = 512>, #ktir.resident<name = b, address = 512, bytes = 256>], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    return
  }
}

// -----

module attributes {ktir.level = "tiled"} {
  func.func @entry() {
    call @kernel() : () -> ()
    return
  }
  // expected-error@+1 {{keeps 'a' at bytes 1625088 to 1625600 of the scratchpad, which has 1625344}}
  func.func @kernel() attributes {grid = [1], ktir.residents = [#ktir.resident<name = a, address = 1625088, bytes = 512>], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    return
  }
}

// -----

module attributes {ktir.level = "divided"} {
  func.func @entry() {
    call @kernel() : () -> ()
    return
  }
  // expected-error@+1 {{expects 'a' to take whole entries of 256 bytes, but got 512 at 128}}
  func.func @kernel() attributes {grid = [1], ktir.residents = [#ktir.resident<name = a, address = 128, bytes = 512>], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    return
  }
}

// -----

#box = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "divided"} {
  func.func @entry() {
    call @kernel() : () -> ()
    return
  }
  func.func @kernel() attributes {grid = [1], ktir.residents = [#ktir.resident<name = a, address = 256, bytes = 256>], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %c128 = arith.constant 128 : index
    // expected-error@+1 {{shows 'b', which its kernel does not list in 'ktir.residents'}}
    %b = ktdp.construct_memory_view %c128, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #ktir.resident<name = b, address = 256, bytes = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    %c256 = arith.constant 256 : index
    // expected-error@+1 {{begins at byte 512 of the scratchpad, outside of 'a'}}
    %a = ktdp.construct_memory_view %c256, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #ktir.resident<name = a, address = 256, bytes = 256>, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    // expected-error@+1 {{expects 'a' in memory_space 'ct_local', but got 'global'}}
    %g = ktdp.construct_memory_view %c128, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, ktir.resident = #ktir.resident<name = a, address = 256, bytes = 256>, memory_space = #ktdp.memory_space<global>} : memref<1x2x64xf16>
    return
  }
}

// -----

#box = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "divided"} {
  func.func @entry() {
    call @kernel() : () -> ()
    return
  }
  func.func @kernel() attributes {grid = [1], ktir.rows = array<i64: 2>, ktir.work = #ktir.work<splits = [1, 1, 1], tile = [1, 2, 64]>} {
    %c128 = arith.constant 128 : index
    // expected-error@+1 {{expects memory_space 'global' above the allocated level, but got 'ct_local'}}
    %l = ktdp.construct_memory_view %c128, sizes: [1, 2, 64], strides: [128, 64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<ct_local>} : memref<1x2x64xf16>
    return
  }
}
