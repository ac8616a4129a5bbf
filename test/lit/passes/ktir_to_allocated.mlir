// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-to-allocated{cores=8})' | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated=cores=8 | FileCheck %s
// RUN: ktir-opt %s --ktir-to-allocated='cores=4 lx-bytes=65536 rows=2 verify=false' --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: ktir-opt %s --ktir-to-allocated --ktir-stop-after=ktir-tile | FileCheck %s --check-prefix=TILED
// RUN: ktir-opt %s --ktir-to-allocated=cores=2 --check-semantics -o /dev/null
// RUN: not ktir-opt %s --ktir-to-allocated=lx-bytes=256 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: not ktir-opt %s --ktir-to-allocated=colour=red 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not ktir-opt %s --pass-pipeline='builtin.module(func.func(ktir-to-allocated))' 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: ktir-opt %s --ktir-to-allocated | ktir-opt --ktir-to-allocated | FileCheck %s --check-prefix=TWICE

// CHECK: module attributes {ktir.hosts = [tensor<
// CHECK-SAME: ], ktir.level = "allocated"}
// CHECK: grid = [8]
// STAGES: builtin.module(ktir-lift{cores=4},ktir-pin{cores=4},ktir-state-level,ktir-outline-repeats,ktir-separate-calls,cse,ktir-generalize,ktir-break-views,ktir-split-bodies,ktir-plan{cores=4 lx-bytes=65536},ktir-assign-layouts{cores=4},ktir-form-kernels{cores=4 lx-bytes=65536},ktir-divide-work{cores=4 lx-bytes=65536},ktir-keep-resident{rows=2 lx-bytes=65536},ktir-tile{rows=2 lx-bytes=65536},ktir-allocate-scratchpad{lx-bytes=65536})
// TILED: ktir.level = "tiled"}
// SMALL: ktir_to_allocated.mlir:[[#]]:[[#]]: error:
// SMALL: note: in pass 'ktir-tile{lx-bytes=256}'
// OPTION: pipeline:1:1: error: pass 'ktir-to-allocated' has no option 'colour=red' (options: numbers, way, within, target, saved, cores, lx-bytes, work-div, steps, rows, online-softmax, num-tiles, reuse, resident, exchange, verify)
// NESTED: error: pass 'ktir-lift' runs on 'builtin.module', but is nested under 'func.func'
// TWICE: ktir.level = "allocated"
#map = affine_map<(d0, d1) -> (d0, d1)>
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 15 >= 0, d1 >= 0, -d1 + 99 >= 0)>
module attributes {ktir.level = "logical"} {
  func.func @double(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<16x100xf16>},
                    %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<16x100xf16>}) {
    %0 = ktdp.construct_memory_view %x, sizes: [16, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<16x100xf16>
    %1 = ktdp.construct_access_tile %0[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<16x100xf16> -> !ktdp.access_tile<16x100xindex>
    %2 = ktdp.load %1 : <16x100xindex> -> tensor<16x100xf16>
    %3 = tensor.empty() : tensor<16x100xf16>
    %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%2 : tensor<16x100xf16>) outs(%3 : tensor<16x100xf16>) {
    ^bb0(%in: f16, %out: f16):
      %7 = arith.addf %in, %in : f16
      linalg.yield %7 : f16
    } -> tensor<16x100xf16>
    %5 = ktdp.construct_memory_view %y, sizes: [16, 100], strides: [100, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<16x100xf16>
    %6 = ktdp.construct_access_tile %5[0, 0] {access_tile_order = #map, access_tile_set = #set} : memref<16x100xf16> -> !ktdp.access_tile<16x100xindex>
    ktdp.store %4, %6 : tensor<16x100xf16>, <16x100xindex>
    return
  }
}
