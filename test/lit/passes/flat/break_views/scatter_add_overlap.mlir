// RUN: ktir-opt %s --pass-pipeline='builtin.module(ktir-break-views)' --verify-diagnostics

// What is added to a view whose windows overlap would be lost where a load, a sum and a store of all of it stand for the additions.

#windows = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 2 >= 0)>
#same = affine_map<(d0, d1) -> (d0, d1)>
module attributes {ktir.level = "logical"} {
  func.func @main(%x: index {ktir.name = "x", ktir.role = "input", ktir.type = tensor<4x3xf32>},
                  %y: index {ktir.name = "y", ktir.role = "input_output", ktir.type = tensor<6xf32>}) {
    %x_view = ktdp.construct_memory_view %x, sizes: [4, 3], strides: [3, 1]
        {coordinate_set = #windows, memory_space = #ktdp.memory_space<global>} : memref<4x3xf32>
    %x_tile = ktdp.construct_access_tile %x_view[0, 0] {access_tile_order = #same, access_tile_set = #windows}
        : memref<4x3xf32> -> !ktdp.access_tile<4x3xindex>
    %v = ktdp.load %x_tile : <4x3xindex> -> tensor<4x3xf32>
    %y_view = ktdp.construct_memory_view %y, sizes: [4, 3], strides: [1, 1]
        {coordinate_set = #windows, memory_space = #ktdp.memory_space<global>} : memref<4x3xf32>
    %y_tile = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %y_view[(%i), (%j)]
        {variables_space_order = #same, variables_space_set = #windows} : memref<4x3xf32> -> !ktdp.access_tile<4x3xindex>
    // expected-error@+1 {{'ktir.scatter_add' op adds to a view that has elements several times, which is not supported}}
    ktir.scatter_add %v, %y_tile : tensor<4x3xf32>, !ktdp.access_tile<4x3xindex>
    return
  }
}
