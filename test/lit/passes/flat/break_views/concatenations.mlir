// RUN: ktir-opt --split-input-file --pass-pipeline='builtin.module(ktir-break-views)' --check-semantics %s | filecheck %s

// What is computed of a concatenation element by element is computed of its parts, and each part is stored where it belongs.

#map = affine_map<(d0, d1) -> (d0, d1)>
#half = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 9 >= 0)>
#whole = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 19 >= 0)>

// CHECK-LABEL: @swapped_halves
// CHECK-NOT: pool
// CHECK-COUNT-2: linalg.generic
// CHECK: ktdp.store %{{.*}} : tensor<5x10xf16>
// CHECK: linalg.generic
// CHECK: ktdp.store %{{.*}} : tensor<5x10xf16>
// CHECK-NOT: ktdp.store
module attributes {ktir.level = "logical"} {
  func.func @swapped_halves(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5x20xf16>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<5x20xf16>}) {
    %c10 = arith.constant 10 : index
    %second = arith.addi %x, %c10 : index
    %v0 = ktdp.construct_memory_view %x, sizes: [5, 10], strides: [20, 1] {coordinate_set = #half, memory_space = #ktdp.memory_space<global>} : memref<5x10xf16>
    %t0 = ktdp.construct_access_tile %v0[0, 0] {access_tile_order = #map, access_tile_set = #half} : memref<5x10xf16> -> !ktdp.access_tile<5x10xindex>
    %a = ktdp.load %t0 : <5x10xindex> -> tensor<5x10xf16>
    %v1 = ktdp.construct_memory_view %second, sizes: [5, 10], strides: [20, 1] {coordinate_set = #half, memory_space = #ktdp.memory_space<global>} : memref<5x10xf16>
    %t1 = ktdp.construct_access_tile %v1[0, 0] {access_tile_order = #map, access_tile_set = #half} : memref<5x10xf16> -> !ktdp.access_tile<5x10xindex>
    %b = ktdp.load %t1 : <5x10xindex> -> tensor<5x10xf16>
    %e = tensor.empty() : tensor<5x10xf16>
    %n = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%b : tensor<5x10xf16>) outs(%e : tensor<5x10xf16>) {
    ^bb0(%in: f16, %out: f16):
      %1 = arith.negf %in : f16
      linalg.yield %1 : f16
    } -> tensor<5x10xf16>
    %w = tensor.empty() : tensor<5x20xf16>
    %i0 = tensor.insert_slice %n into %w[0, 0] [5, 10] [1, 1] : tensor<5x10xf16> into tensor<5x20xf16>
    %i1 = tensor.insert_slice %a into %i0[0, 10] [5, 10] [1, 1] : tensor<5x10xf16> into tensor<5x20xf16>
    %v2 = ktdp.construct_memory_view %x, sizes: [5, 20], strides: [20, 1] {coordinate_set = #whole, memory_space = #ktdp.memory_space<global>} : memref<5x20xf16>
    %t2 = ktdp.construct_access_tile %v2[0, 0] {access_tile_order = #map, access_tile_set = #whole} : memref<5x20xf16> -> !ktdp.access_tile<5x20xindex>
    %c = ktdp.load %t2 : <5x20xindex> -> tensor<5x20xf16>
    %s = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%c, %i1 : tensor<5x20xf16>, tensor<5x20xf16>) outs(%w : tensor<5x20xf16>) {
    ^bb0(%in: f16, %in_0: f16, %out: f16):
      %1 = arith.addf %in, %in_0 : f16
      linalg.yield %1 : f16
    } -> tensor<5x20xf16>
    %v3 = ktdp.construct_memory_view %y, sizes: [5, 20], strides: [20, 1] {coordinate_set = #whole, memory_space = #ktdp.memory_space<global>} : memref<5x20xf16>
    %t3 = ktdp.construct_access_tile %v3[0, 0] {access_tile_order = #map, access_tile_set = #whole} : memref<5x20xf16> -> !ktdp.access_tile<5x20xindex>
    ktdp.store %s, %t3 : tensor<5x20xf16>, <5x20xindex>
    return
  }
}

// -----

// A row of a concatenation that is summed up is wanted as a whole: the concatenation stays where it is.

#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0) -> (d0)>
#half = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 9 >= 0)>
#rows = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>

// CHECK-LABEL: @summed
// CHECK-SAME: ktir.role = "pool"
// CHECK: math.exp
// CHECK-NOT: math.exp
module attributes {ktir.level = "logical"} {
  func.func @summed(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5x10xf16>}, %z: index {ktir.name = "z", ktir.role = "input", ktir.type = tensor<5x10xf16>}, %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<5xf32>}) {
    %v0 = ktdp.construct_memory_view %x, sizes: [5, 10], strides: [10, 1] {coordinate_set = #half, memory_space = #ktdp.memory_space<global>} : memref<5x10xf16>
    %t0 = ktdp.construct_access_tile %v0[0, 0] {access_tile_order = #map, access_tile_set = #half} : memref<5x10xf16> -> !ktdp.access_tile<5x10xindex>
    %a = ktdp.load %t0 : <5x10xindex> -> tensor<5x10xf16>
    %v1 = ktdp.construct_memory_view %z, sizes: [5, 10], strides: [10, 1] {coordinate_set = #half, memory_space = #ktdp.memory_space<global>} : memref<5x10xf16>
    %t1 = ktdp.construct_access_tile %v1[0, 0] {access_tile_order = #map, access_tile_set = #half} : memref<5x10xf16> -> !ktdp.access_tile<5x10xindex>
    %b = ktdp.load %t1 : <5x10xindex> -> tensor<5x10xf16>
    %w = tensor.empty() : tensor<5x20xf16>
    %i0 = tensor.insert_slice %a into %w[0, 0] [5, 10] [1, 1] : tensor<5x10xf16> into tensor<5x20xf16>
    %i1 = tensor.insert_slice %b into %i0[0, 10] [5, 10] [1, 1] : tensor<5x10xf16> into tensor<5x20xf16>
    %e = tensor.empty() : tensor<5x20xf32>
    %s = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%i1 : tensor<5x20xf16>) outs(%e : tensor<5x20xf32>) {
    ^bb0(%in: f16, %out: f32):
      %1 = arith.extf %in : f16 to f32
      %2 = math.exp %1 : f32
      linalg.yield %2 : f32
    } -> tensor<5x20xf32>
    %zero = arith.constant 0.0 : f32
    %f = tensor.empty() : tensor<5xf32>
    %g = linalg.fill ins(%zero : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
    %r = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%s : tensor<5x20xf32>) outs(%g : tensor<5xf32>) {
    ^bb0(%in: f32, %out: f32):
      %1 = arith.addf %out, %in : f32
      linalg.yield %1 : f32
    } -> tensor<5xf32>
    %v3 = ktdp.construct_memory_view %y, sizes: [5], strides: [1] {coordinate_set = #rows, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %t3 = ktdp.construct_access_tile %v3[0] {access_tile_order = #id, access_tile_set = #rows} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    ktdp.store %r, %t3 : tensor<5xf32>, <5xindex>
    return
  }
}
