// i64 and i1 in memory are i32; coordinates are operands from an argument of role iota; an index tensor is a pool.
// RUN: ktir-opt %s --ktir-break-views --check-semantics | FileCheck %s

#v5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#v53 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 4 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#v93 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 8 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @gather(
// CHECK-SAME: %arg0: index {ktir.name = "n", ktir.role = "input", ktir.type = tensor<5xi64>}
// CHECK-SAME: ktir.name = "iota0", ktir.role = "iota", ktir.type = tensor<5xi32>
// CHECK-SAME: ktir.name = "pool0", ktir.role = "pool", ktir.type = tensor<5xi32>
module attributes {ktir.level = "logical"} {
  func.func @gather(%n: index {ktir.name = "n", ktir.role = "input", ktir.type = tensor<5xi64>},
                    %x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<9x3xf16>},
                    %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<5x3xf16>},
                    %f: index {ktir.name = "f", ktir.role = "output", ktir.type = tensor<5xi1>}) {
    // CHECK: ktdp.construct_memory_view %arg0, {{.*}} : memref<5xi32>
    %vn = ktdp.construct_memory_view %n, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xi64>
    %tn = ktdp.construct_access_tile %vn[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xi64> -> !ktdp.access_tile<5xindex>
    %a = ktdp.load %tn : <5xindex> -> tensor<5xi64>
    %e = tensor.empty() : tensor<5xi64>
    // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<5xi32>, tensor<5xi32>) outs(%{{.*}} : tensor<5xi32>)
    // CHECK-NEXT: ^bb0(%[[N:.*]]: i32, %[[I:.*]]: i32, %{{.*}}: i32):
    // CHECK-NEXT: %[[S:.*]] = arith.addi %[[I]], %[[N]] : i32
    // CHECK: arith.remsi %[[S]], %{{.*}} : i32
    %b = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]} ins(%a : tensor<5xi64>) outs(%e : tensor<5xi64>) {
    ^bb0(%i: i64, %o: i64):
      %k = linalg.index 0 : index
      %l = arith.index_cast %k : index to i64
      %s = arith.addi %l, %i : i64
      %c = arith.constant 9 : i64
      %r = arith.remsi %s, %c : i64
      linalg.yield %r : i64
    } -> tensor<5xi64>
    %m = ktir.materialize %b : tensor<5xi64> -> memref<5xi64>
    // CHECK: %[[M:.*]] = ktdp.construct_memory_view %arg5, sizes: [5], strides: [1] {{.*}} : memref<5xi32>
    // CHECK: ktdp.store %{{.*}} : tensor<5xi32>
    // CHECK: ktdp.construct_indirect_access_tile {{.*}}[ind(%[[M]][%{{.*}}]), (%{{.*}})] {{.*}} memref<9x3xf16>, memref<5xi32>
    %vx = ktdp.construct_memory_view %x, sizes: [9, 3], strides: [3, 1] {coordinate_set = #v93, memory_space = #ktdp.memory_space<global>} : memref<9x3xf16>
    %tx = ktdp.construct_indirect_access_tile intermediate_variables(%p, %q) %vx[ind(%m[%p]), (%q)] {variables_space_order = #id2, variables_space_set = #v53} : memref<9x3xf16>, memref<5xi64> -> !ktdp.access_tile<5x3xindex>
    %g = ktdp.load %tx : <5x3xindex> -> tensor<5x3xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [5, 3], strides: [3, 1] {coordinate_set = #v53, memory_space = #ktdp.memory_space<global>} : memref<5x3xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #v53} : memref<5x3xf16> -> !ktdp.access_tile<5x3xindex>
    ktdp.store %g, %ty : tensor<5x3xf16>, <5x3xindex>
    %d = tensor.empty() : tensor<5xi1>
    // CHECK: arith.cmpi sgt, %{{.*}} : i32
    // CHECK-NEXT: arith.extui %{{.*}} : i1 to i32
    %h = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]} ins(%a : tensor<5xi64>) outs(%d : tensor<5xi1>) {
    ^bb0(%i: i64, %o: i1):
      %c = arith.constant 3 : i64
      %z = arith.cmpi sgt, %i, %c : i64
      linalg.yield %z : i1
    } -> tensor<5xi1>
    // CHECK: ktdp.construct_memory_view %arg3, {{.*}} : memref<5xi32>
    %vf = ktdp.construct_memory_view %f, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xi1>
    %tf = ktdp.construct_access_tile %vf[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xi1> -> !ktdp.access_tile<5xindex>
    ktdp.store %h, %tf : tensor<5xi1>, <5xindex>
    return
  }
}
