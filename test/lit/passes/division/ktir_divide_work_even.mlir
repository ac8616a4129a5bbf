// Equal parts have views of static sizes, on the divided and on the tiled level; unequal ones are masked.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=cores=4 --check-semantics | FileCheck %s --check-prefixes=EVEN,DIVIDED
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=cores=4 --ktir-tile --check-semantics | FileCheck %s --check-prefix=EVEN
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work=cores=3 | FileCheck %s --check-prefix=UNEVEN

// EVEN-LABEL: func.func @forward_kernel0(
// EVEN-NOT: masked
// DIVIDED: sizes: [2, 64, 64], strides: [16384, 64, 1]
// EVEN-NOT: masked
// EVEN: return
// UNEVEN: %[[ROWS:.*]] = arith.minsi
// UNEVEN: sizes: [2, %[[ROWS]], 64], {{.*}} masked
#set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 255 >= 0, d1 >= 0, -d1 + 127 >= 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<256x128xf16>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<256x128xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [256, 128], strides: [128, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<256x128xf16>
    %tx = ktdp.construct_access_tile %vx[0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<256x128xf16> -> !ktdp.access_tile<256x128xindex>
    %a = ktdp.load %tx : <256x128xindex> -> tensor<256x128xf16>
    %e = tensor.empty() : tensor<256x128xf16>
    %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<256x128xf16>) outs(%e : tensor<256x128xf16>) {
    ^bb0(%i: f16, %o: f16):
      %n = arith.negf %i : f16
      linalg.yield %n : f16
    } -> tensor<256x128xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [256, 128], strides: [128, 1] {coordinate_set = #set, memory_space = #ktdp.memory_space<global>} : memref<256x128xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id, access_tile_set = #set} : memref<256x128xf16> -> !ktdp.access_tile<256x128xindex>
    ktdp.store %b, %ty : tensor<256x128xf16>, <256x128xindex>
    return
  }
}
