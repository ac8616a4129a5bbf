// A sort is a rank and a selection, a scan a masked sum, integers are reduced in f32, several loops one after the other.
// RUN: ktir-opt %s --split-input-file --ktir-break-views --check-semantics | FileCheck %s

#v5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#v3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#id1 = affine_map<(d0) -> (d0)>

// Of a sort of which three are used three are selected.
// CHECK-LABEL: func.func @top(
// CHECK-NOT: pool
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<5xf16>, tensor<5xf16>, tensor<5xi32>, tensor<5xi32>) outs(%{{.*}} : tensor<5xf32>)
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins({{.*}}) outs(%{{.*}} : tensor<3xf32>)
// CHECK: arith.maximumf
// CHECK-NOT: ktir.sort
module attributes {ktir.level = "logical"} {
  func.func @top(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5xf16>},
                 %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<3xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xf16>
    %tx = ktdp.construct_access_tile %vx[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xf16> -> !ktdp.access_tile<5xindex>
    %a = ktdp.load %tx : <5xindex> -> tensor<5xf16>
    %s = ktir.sort %a dimension = 0 {descending, stable} : tensor<5xf16> -> tensor<5xf16>
    %t = tensor.extract_slice %s[0] [3] [1] : tensor<5xf16> to tensor<3xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [3], strides: [1] {coordinate_set = #v3, memory_space = #ktdp.memory_space<global>} : memref<3xf16>
    %ty = ktdp.construct_access_tile %vy[0] {access_tile_order = #id1, access_tile_set = #v3} : memref<3xf16> -> !ktdp.access_tile<3xindex>
    ktdp.store %t, %ty : tensor<3xf16>, <3xindex>
    return
  }
}

// -----

#v5 = affine_set<(d0) : (d0 >= 0, -d0 + 4 >= 0)>
#v0 = affine_set<() : (0 == 0)>
#id1 = affine_map<(d0) -> (d0)>
#id0 = affine_map<() -> ()>
#to0 = affine_map<(d0) -> ()>

// CHECK-LABEL: func.func @sums(
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK: arith.addf
// CHECK-NOT: ktir.scan
// CHECK: arith.maximumf
// CHECK: arith.maximumf
// CHECK-NOT: "reduction"{{.*}} outs(%{{.*}} : tensor<i32>)
module attributes {ktir.level = "logical"} {
  func.func @sums(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<5xf32>},
                  %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<5xf32>},
                  %n: index {ktir.name = "n", ktir.role = "input", ktir.type = tensor<5xi64>},
                  %m: index {ktir.name = "m", ktir.role = "output", ktir.type = tensor<1xi64>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %tx = ktdp.construct_access_tile %vx[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    %a = ktdp.load %tx : <5xindex> -> tensor<5xf32>
    %s = ktir.scan %a dimension = 0 : tensor<5xf32> -> tensor<5xf32> {
    ^bb0(%i: f32, %j: f32):
      %k = arith.addf %i, %j : f32
      ktir.yield %k : f32
    }
    %vy = ktdp.construct_memory_view %y, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xf32>
    %ty = ktdp.construct_access_tile %vy[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xf32> -> !ktdp.access_tile<5xindex>
    ktdp.store %s, %ty : tensor<5xf32>, <5xindex>
    %vn = ktdp.construct_memory_view %n, sizes: [5], strides: [1] {coordinate_set = #v5, memory_space = #ktdp.memory_space<global>} : memref<5xi64>
    %tn = ktdp.construct_access_tile %vn[0] {access_tile_order = #id1, access_tile_set = #v5} : memref<5xi64> -> !ktdp.access_tile<5xindex>
    %b = ktdp.load %tn : <5xindex> -> tensor<5xi64>
    %least = arith.constant -9223372036854775808 : i64
    %e = tensor.empty() : tensor<i64>
    %init = linalg.fill ins(%least : i64) outs(%e : tensor<i64>) -> tensor<i64>
    %c = linalg.generic {indexing_maps = [#id1, #to0], iterator_types = ["reduction"]} ins(%b : tensor<5xi64>) outs(%init : tensor<i64>) {
    ^bb0(%i: i64, %o: i64):
      %k = arith.maxsi %o, %i : i64
      linalg.yield %k : i64
    } -> tensor<i64>
    %vm = ktdp.construct_memory_view %m, sizes: [], strides: [] {coordinate_set = #v0, memory_space = #ktdp.memory_space<global>} : memref<i64>
    %tm = ktdp.construct_access_tile %vm[] {access_tile_order = #id0, access_tile_set = #v0} : memref<i64> -> !ktdp.access_tile<index>
    ktdp.store %c, %tm : tensor<i64>, <index>
    return
  }
}
