// Two rows of this kernel do not fit the scratchpad.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work --ktir-tile --verify-diagnostics
module attributes {ktir.level = "logical"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [3, 300000], strides: [300000, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 299999 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x300000xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 299999 >= 0)>} : memref<3x300000xf16> -> !ktdp.access_tile<3x300000xindex>
    %X = ktdp.load %tX : <3x300000xindex> -> tensor<3x300000xf16>
    %e = tensor.empty() : tensor<3x300000xf16>
    // expected-error @+1 {{kernel needs}}
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
        ins(%X : tensor<3x300000xf16>) outs(%e : tensor<3x300000xf16>) {
    ^bb0(%a: f16, %o: f16):
      %r = math.exp %a : f16
      linalg.yield %r : f16
    } -> tensor<3x300000xf16>
    %vY = ktdp.construct_memory_view %y, sizes: [3, 300000], strides: [300000, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 299999 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x300000xf16>
    %tY = ktdp.construct_access_tile %vY[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 299999 >= 0)>} : memref<3x300000xf16> -> !ktdp.access_tile<3x300000xindex>
    ktdp.store %h, %tY : tensor<3x300000xf16>, <3x300000xindex>
    return
  }
}
