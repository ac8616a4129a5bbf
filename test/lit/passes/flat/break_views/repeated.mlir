// A reduction that would make the same numbers for each trip of a loop makes them once; whoever reads it sees them along that loop.
// RUN: ktir-opt %s --ktir-break-views --check-semantics | FileCheck %s

#v65 = affine_set<(d0) : (d0 >= 0, -d0 + 64 >= 0)>
#v65x65 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 64 >= 0, d1 >= 0, -d1 + 64 >= 0)>
#v2x65 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 64 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#g = #ktdp.memory_space<global>

// CHECK-LABEL: func.func @equal_rows(
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK-SAME: outs(%{{.*}} : tensor<65xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK-SAME: ins(%{{.*}} : tensor<65xf32>) outs(%{{.*}} : tensor<2x65xf32>)
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]
// CHECK-SAME: ins(%{{.*}} : tensor<65xf32>) outs(%{{.*}} : tensor<2x65xf16>)
module attributes {ktir.level = "logical"} {
  func.func @equal_rows(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<65xf16>},
                        %w: index {ktir.name = "w", ktir.role = "input", ktir.type = tensor<65x65xf16>},
                        %y: index {ktir.name = "y", ktir.role = "output", ktir.type = tensor<2x65xf16>},
                        %z: index {ktir.name = "z", ktir.role = "output", ktir.type = tensor<2x65xf32>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [65], strides: [1] {coordinate_set = #v65, memory_space = #g} : memref<65xf16>
    %tx = ktdp.construct_access_tile %vx[0] {access_tile_order = #id1, access_tile_set = #v65} : memref<65xf16> -> !ktdp.access_tile<65xindex>
    %a = ktdp.load %tx : <65xindex> -> tensor<65xf16>
    %vw = ktdp.construct_memory_view %w, sizes: [65, 65], strides: [65, 1] {coordinate_set = #v65x65, memory_space = #g} : memref<65x65xf16>
    %tw = ktdp.construct_access_tile %vw[0, 0] {access_tile_order = #id2, access_tile_set = #v65x65} : memref<65x65xf16> -> !ktdp.access_tile<65x65xindex>
    %b = ktdp.load %tw : <65x65xindex> -> tensor<65x65xf16>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<2x65xf32>
    %o = linalg.fill ins(%zero : f32) outs(%e : tensor<2x65xf32>) -> tensor<2x65xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>],
                         iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<65xf16>, tensor<65x65xf16>) outs(%o : tensor<2x65xf32>) {
    ^bb0(%i: f16, %j: f16, %s: f32):
      %iw = arith.extf %i : f16 to f32
      %jw = arith.extf %j : f16 to f32
      %m = arith.mulf %iw, %jw : f32
      %t = arith.addf %s, %m : f32
      linalg.yield %t : f32
    } -> tensor<2x65xf32>
    %f = tensor.empty() : tensor<2x65xf16>
    %n = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<2x65xf32>) outs(%f : tensor<2x65xf16>) {
    ^bb0(%i: f32, %s: f16):
      %h = arith.truncf %i : f32 to f16
      linalg.yield %h : f16
    } -> tensor<2x65xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [2, 65], strides: [65, 1] {coordinate_set = #v2x65, memory_space = #g} : memref<2x65xf16>
    %ty = ktdp.construct_access_tile %vy[0, 0] {access_tile_order = #id2, access_tile_set = #v2x65} : memref<2x65xf16> -> !ktdp.access_tile<2x65xindex>
    ktdp.store %n, %ty : tensor<2x65xf16>, <2x65xindex>
    %vz = ktdp.construct_memory_view %z, sizes: [2, 65], strides: [65, 1] {coordinate_set = #v2x65, memory_space = #g} : memref<2x65xf32>
    %tz = ktdp.construct_access_tile %vz[0, 0] {access_tile_order = #id2, access_tile_set = #v2x65} : memref<2x65xf32> -> !ktdp.access_tile<2x65xindex>
    ktdp.store %p, %tz : tensor<2x65xf32>, <2x65xindex>
    return
  }
}
