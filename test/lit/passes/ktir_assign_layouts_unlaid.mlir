// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-assign-layouts

module attributes {ktir.level = "logical"} {
  func.func @backwards(%a: index) {
    // expected-error@+1 {{'ktdp.construct_memory_view' op runs backwards through memory, which is not supported}}
    %v = ktdp.construct_memory_view %a, sizes: [4], strides: [-1]
        {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
    return
  }
}

// -----

module attributes {ktir.level = "logical"} {
  func.func @integers(%a: index) {
    // expected-error@+1 {{'ktdp.construct_memory_view' op views elements of type i64, which have no stick layout; f16 and f32 have}}
    %v = ktdp.construct_memory_view %a, sizes: [4], strides: [1]
        {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
    return
  }
}

// -----

module attributes {ktir.level = "logical"} {
  func.func @coordinates(%x: tensor<4xf16>) {
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<4xf16>) {
    ^bb0(%o: f16):
      // expected-error@+1 {{'linalg.index' op computes with coordinates, which is not supported on the logical level}}
      %i = linalg.index 0 : index
      %j = arith.index_cast %i : index to i16
      %k = arith.sitofp %j : i16 to f16
      linalg.yield %k : f16
    } -> tensor<4xf16>
    return
  }
}
