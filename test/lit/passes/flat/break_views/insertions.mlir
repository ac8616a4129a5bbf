// Two concatenations that begin alike: CSE makes their beginning one, and each writes to memory of its own nevertheless, without a copy.
// RUN: ktir-opt %s --cse --ktir-break-views --check-semantics | FileCheck %s

#s3 = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>
#s4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#s7 = affine_set<(d0) : (d0 >= 0, -d0 + 6 >= 0)>
#id = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @begin_alike(
// CHECK-COUNT-3: ktdp.load
// CHECK-NOT: ktdp.load
// CHECK: return
module attributes {ktir.level = "logical"} {
  func.func @begin_alike(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<3xf16>},
                         %y: index {ktir.name = "y", ktir.role = "input", ktir.type = tensor<4xf16>},
                         %z: index {ktir.name = "z", ktir.role = "input", ktir.type = tensor<4xf16>},
                         %u: index {ktir.name = "u", ktir.role = "output", ktir.type = tensor<7xf16>},
                         %v: index {ktir.name = "v", ktir.role = "output", ktir.type = tensor<7xf16>}) {
    %vx = ktdp.construct_memory_view %x, sizes: [3], strides: [1] {coordinate_set = #s3, memory_space = #ktdp.memory_space<global>} : memref<3xf16>
    %tx = ktdp.construct_access_tile %vx[0] {access_tile_order = #id, access_tile_set = #s3} : memref<3xf16> -> !ktdp.access_tile<3xindex>
    %lx = ktdp.load %tx : <3xindex> -> tensor<3xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [4], strides: [1] {coordinate_set = #s4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %ty = ktdp.construct_access_tile %vy[0] {access_tile_order = #id, access_tile_set = #s4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    %ly = ktdp.load %ty : <4xindex> -> tensor<4xf16>
    %vz = ktdp.construct_memory_view %z, sizes: [4], strides: [1] {coordinate_set = #s4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    %tz = ktdp.construct_access_tile %vz[0] {access_tile_order = #id, access_tile_set = #s4} : memref<4xf16> -> !ktdp.access_tile<4xindex>
    %lz = ktdp.load %tz : <4xindex> -> tensor<4xf16>
    %e = tensor.empty() : tensor<7xf16>
    %a = tensor.insert_slice %lx into %e[0] [3] [1] : tensor<3xf16> into tensor<7xf16>
    %b = tensor.insert_slice %ly into %a[3] [4] [1] : tensor<4xf16> into tensor<7xf16>
    %f = tensor.empty() : tensor<7xf16>
    %c = tensor.insert_slice %lx into %f[0] [3] [1] : tensor<3xf16> into tensor<7xf16>
    %d = tensor.insert_slice %lz into %c[3] [4] [1] : tensor<4xf16> into tensor<7xf16>
    %vu = ktdp.construct_memory_view %u, sizes: [7], strides: [1] {coordinate_set = #s7, memory_space = #ktdp.memory_space<global>} : memref<7xf16>
    %tu = ktdp.construct_access_tile %vu[0] {access_tile_order = #id, access_tile_set = #s7} : memref<7xf16> -> !ktdp.access_tile<7xindex>
    ktdp.store %b, %tu : tensor<7xf16>, <7xindex>
    %vv = ktdp.construct_memory_view %v, sizes: [7], strides: [1] {coordinate_set = #s7, memory_space = #ktdp.memory_space<global>} : memref<7xf16>
    %tv = ktdp.construct_access_tile %vv[0] {access_tile_order = #id, access_tile_set = #s7} : memref<7xf16> -> !ktdp.access_tile<7xindex>
    ktdp.store %d, %tv : tensor<7xf16>, <7xindex>
    return
  }
}
