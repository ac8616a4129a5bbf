// RUN: ktir-opt %s --split-input-file --verify-diagnostics --ktir-assign-layouts

module attributes {ktir.level = "flat"} {
  func.func @integers(%a: index {ktir.name = "a", ktir.role = "input"}) {
    // expected-error@+1 {{'ktdp.construct_memory_view' op views elements of type i64, which have no stick layout; f16, bf16, f32 and i32 have}}
    %v = ktdp.construct_memory_view %a, sizes: [4], strides: [1]
        {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<4xi64>
    %t = ktdp.construct_access_tile %v[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>} : memref<4xi64> -> !ktdp.access_tile<4xindex>
    %x = ktdp.load %t : <4xindex> -> tensor<4xi64>
    return
  }
}

// -----

module attributes {ktir.level = "flat"} {
  func.func @coordinates(%x: tensor<4xf16>) {
    // expected-error@+1 {{'linalg.generic' op computes with coordinates; the nearest supported form reads them from an argument of role 'iota'}}
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : tensor<4xf16>) {
    ^bb0(%o: f16):
      %i = linalg.index 0 : index
      %j = arith.index_cast %i : index to i16
      %k = arith.sitofp %j : i16 to f16
      linalg.yield %k : f16
    } -> tensor<4xf16>
    return
  }
}

// -----

module attributes {ktir.level = "flat"} {
  func.func @shapes(%x: tensor<4x5xf16>) {
    // expected-error@+1 {{'tensor.collapse_shape' op is not supported on the flat level}}
    %c = tensor.collapse_shape %x [[0, 1]] : tensor<4x5xf16> into tensor<20xf16>
    return
  }
}

// -----

module attributes {ktir.level = "flat"} {
  func.func @truth(%x: tensor<4xf16>) {
    %e = tensor.empty() : tensor<4xi1>
    // expected-error@+1 {{'linalg.generic' op makes a tensor of i1, which has no stick layout; f16, bf16, f32 and i32 have}}
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%x : tensor<4xf16>) outs(%e : tensor<4xi1>) {
    ^bb0(%a: f16, %o: i1):
      %z = arith.constant 0.0 : f16
      %k = arith.cmpf ogt, %a, %z : f16
      linalg.yield %k : i1
    } -> tensor<4xi1>
    return
  }
}

// -----

// A level of its own: what is logical is flattened first.
// expected-error@+1 {{'ktir-assign-layouts' expects a module at level 'flat', but got 'logical'; 'ktir-break-views' goes there from it}}
module attributes {ktir.level = "logical"} {
  func.func @f() { return }
}
