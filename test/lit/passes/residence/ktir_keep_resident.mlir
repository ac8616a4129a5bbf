// RUN: ktir-opt %s --ktir-keep-resident=exchange=false | FileCheck %s
// RUN: ktir-opt %s --ktir-keep-resident=exchange=false --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ktir-opt %s --ktir-keep-resident=resident=false | FileCheck %s --check-prefix=OFF
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-keep-resident{exchange=false},ktir-verify-level{level=divided},ktir-tile,ktir-verify-level{level=tiled},ktir-allocate-scratchpad,ktir-verify-level{level=allocated})' | FileCheck %s --check-prefix=ALLOCATED
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-keep-resident{exchange=false},ktir-tile,ktir-allocate-scratchpad,convert-ktir-to-spyre)' --check-semantics -o /dev/null
// RUN: ktir-opt %s --ktir-keep-resident='lx-bytes=2816 exchange=false' --remarks -o /dev/null 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-keep-resident,ktir-verify-level{level=divided},ktir-tile,ktir-verify-level{level=tiled},ktir-allocate-scratchpad,ktir-verify-level{level=allocated})' --remarks 2>&1 | FileCheck %s --check-prefix=RING
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-keep-resident,ktir-tile,ktir-allocate-scratchpad,convert-ktir-to-spyre)' --check-semantics -o %t.mlir
// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-keep-resident,ktir-tile,ktir-allocate-scratchpad)' | ktir-explain - | FileCheck %s --check-prefix=EXPLAIN


// Five rows on three cores: two each, the last core one. 'same' is read as it was written and stays; 'moved' is written by some cores and read by
// other cores.

// CHECK: func.func @entry
// CHECK-SAME: ktir.name = "moved"
// CHECK-NOT: "same"
// CHECK: call @produce(%arg0, %arg1)
// CHECK: call @consume(%arg1, %arg2)

// CHECK-LABEL: func.func @produce(%arg0: index, %arg1: index)
// CHECK-SAME: ktir.residents = [#ktir.resident<name = same, address = 1624832, bytes = 512>]
// A core has four entries, sticks two rows apart; 812416 f16 elements are 1624832 bytes.
// CHECK: %[[AT:.+]] = arith.constant 812416
// CHECK: construct_memory_view %[[AT]], sizes: [2, %{{.+}}, 64], strides: [128, 64, 1] {{.*}}ktir.resident = #ktir.resident<name = same, {{.*}}memory_space = #ktdp.memory_space<ct_local>
// CHECK-LABEL: func.func @consume(%arg0: index, %arg1: index)
// CHECK-SAME: ktir.residents

// REMARK: remark: [ktir-keep-resident] 'same' stays in LX at 1624832, 512 bytes per core, from kernel 'produce' to 'consume': saves 2560 bytes of global memory traffic
// REMARK: remark: [ktir-keep-resident] 'moved' goes through global memory: slices disagree: 4 of the 10 entries that cores read are other cores'

// OFF-NOT: ct_local
// OFF: call @produce(%arg0, %arg1, %arg2)

// The result is computed where it stays, and read from there: no buffer, no copy.
// ALLOCATED-LABEL: func.func @produce
// ALLOCATED: %[[HOME:.+]] = ktdp.construct_memory_view %{{.+}} {{.*}}ktir.resident
// ALLOCATED: %[[TILE:.+]] = ktdp.construct_access_tile %[[HOME]]
// ALLOCATED: ktdp.store %{{.+}}, %[[TILE]]
// ALLOCATED-LABEL: func.func @consume
// ALLOCATED: %[[KEPT:.+]] = ktdp.load %{{.+}} : <2x2x64xindex> -> tensor<2x2x64xf16>

// With the ring 'moved' stays too: each core whose rows are read sends them to those that read them, clipped to what it has, and 'consume' reads its
// own ones in the copy of the whole, which begins at the address of the copy plus the core's distance.
// RING: remark: [ktir-keep-resident] 'moved' stays in LX at 1624320, 512 bytes per core, from kernel 'produce' to 'consume', and before 'consume' goes over the ring, 2 rounds, to 1623040 on every core, 1280 bytes: saves 2304 bytes of global memory traffic
// RING: call @produce(%arg0)
// RING: call @consume_exchange()
// RING: call @consume(%arg1)
// RING-LABEL: func.func @consume_exchange() attributes {grid = [3], ktir.exchange
// RING-COUNT-2: ktdp.inter_tile_produce
// RING-LABEL: func.func @consume(
// RING: ktdp.construct_memory_view {{.*}}ktir.resident = #ktir.resident<name = moved_all

// EXPLAIN: kernel 'consume_exchange'
// EXPLAIN-NEXT: grid: 3 of 32 cores; 2 rounds of what stays between kernels, from core to core
// EXPLAIN: predicted: 0.01 us (8 cycles)
// EXPLAIN: emulated: 0.01 us (9 cycles)

// SMALL: remark: [ktir-keep-resident] 'same' goes through global memory: its 512 bytes do not fit beside what kernels 0 to 1 need

#in = #ktir.layout<size = [5, 128], device = [2, 5, 64], strides = [64, 128, 1], dtype = f16, arrangement = standard, pad = zero>
#host = #ktir.host_view<arg = 0, offset = 0, size = [5, 128], strides = [128, 1]>
#host1 = #ktir.host_view<arg = 1, offset = 0, size = [5, 128], strides = [128, 1]>
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#box = affine_set<(d0, d1, d2)[s0] : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + s0 - 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
#tile = affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 1 >= 0, d2 >= 0, -d2 + 63 >= 0)>
module attributes {ktir.level = "divided"} {
  func.func @entry(%arg0: index {ktir.host = #host, ktir.layout = #in, ktir.name = "x", ktir.role = "input"},
                   %arg1: index {ktir.layout = #in, ktir.name = "moved", ktir.role = "pool"},
                   %arg2: index {ktir.layout = #in, ktir.name = "same", ktir.role = "pool"},
                   %arg3: index {ktir.host = #host1, ktir.layout = #in, ktir.name = "y", ktir.role = "output"}) {
    call @produce(%arg0, %arg1, %arg2) : (index, index, index) -> ()
    call @consume(%arg1, %arg2, %arg3) : (index, index, index) -> ()
    return
  }
  func.func @produce(%arg0: index, %arg1: index, %arg2: index) attributes {grid = [3], ktir.rows = array<i64: 5>, ktir.work = #ktir.work<splits = [1, 3, 1], tile = [2, 2, 64]>} {
    %t = ktdp.get_compute_tile_id : index
    %c2 = arith.constant 2 : index
    %c5 = arith.constant 5 : index
    %c64 = arith.constant 64 : index
    %first = arith.muli %t, %c2 : index
    %left = arith.subi %c5, %first : index
    %own = arith.minsi %left, %c2 : index
    %d = arith.muli %first, %c64 : index
    %a = arith.addi %arg0, %d : index
    %va = ktdp.construct_memory_view %a, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %ta = ktdp.construct_access_tile %va[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    %x = ktdp.load %ta : <2x2x64xindex> -> tensor<2x2x64xf16>
    %e = tensor.empty() : tensor<2x2x64xf16>
    %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<2x2x64xf16>) outs(%e : tensor<2x2x64xf16>) {
    ^bb0(%in: f16, %out: f16):
      %z = arith.negf %in : f16
      linalg.yield %z : f16
    } -> tensor<2x2x64xf16>
    %b = arith.addi %arg1, %d : index
    %vb = ktdp.construct_memory_view %b, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %tb = ktdp.construct_access_tile %vb[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    ktdp.store %x, %tb : tensor<2x2x64xf16>, <2x2x64xindex>
    %c = arith.addi %arg2, %d : index
    %vc = ktdp.construct_memory_view %c, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %tc = ktdp.construct_access_tile %vc[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    ktdp.store %y, %tc : tensor<2x2x64xf16>, <2x2x64xindex>
    return
  }
  func.func @consume(%arg0: index, %arg1: index, %arg2: index) attributes {grid = [3], ktir.rows = array<i64: 5>, ktir.work = #ktir.work<splits = [1, 3, 1], tile = [2, 2, 64]>} {
    %t = ktdp.get_compute_tile_id : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c5 = arith.constant 5 : index
    %c64 = arith.constant 64 : index
    %first = arith.muli %t, %c2 : index
    %left = arith.subi %c5, %first : index
    %own = arith.minsi %left, %c2 : index
    %d = arith.muli %first, %c64 : index
    %swapped = arith.addi %t, %c1 : index
    %other = arith.remui %swapped, %c3 : index
    %first1 = arith.muli %other, %c1 : index
    %d1 = arith.muli %first1, %c64 : index
    %b = arith.addi %arg0, %d1 : index
    %vb = ktdp.construct_memory_view %b, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %tb = ktdp.construct_access_tile %vb[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    %m = ktdp.load %tb : <2x2x64xindex> -> tensor<2x2x64xf16>
    %c = arith.addi %arg1, %d : index
    %vc = ktdp.construct_memory_view %c, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %tc = ktdp.construct_access_tile %vc[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    %s = ktdp.load %tc : <2x2x64xindex> -> tensor<2x2x64xf16>
    %e = tensor.empty() : tensor<2x2x64xf16>
    %y = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel", "parallel"]} ins(%m, %s : tensor<2x2x64xf16>, tensor<2x2x64xf16>) outs(%e : tensor<2x2x64xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %z = arith.addf %in, %in_0 : f16
      linalg.yield %z : f16
    } -> tensor<2x2x64xf16>
    %o = arith.addi %arg2, %d : index
    %vo = ktdp.construct_memory_view %o, sizes: [2, %own, 64], strides: [320, 64, 1] {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<2x?x64xf16>
    %to = ktdp.construct_access_tile %vo[0, 0, 0] {access_tile_order = #map, access_tile_set = #tile} : memref<2x?x64xf16> -> !ktdp.access_tile<2x2x64xindex>
    ktdp.store %y, %to : tensor<2x2x64xf16>, <2x2x64xindex>
    return
  }
}
