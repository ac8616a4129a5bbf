// Two rows of this kernel do not fit the scratchpad, and a row is reduced as a whole.
// RUN: ktir-opt %s --ktir-assign-layouts --ktir-form-kernels --ktir-divide-work --ktir-tile --verify-diagnostics
module attributes {ktir.level = "flat"} {
  func.func @forward(%x: index {ktir.name = "x", ktir.role = "input"}, %y: index {ktir.name = "y", ktir.role = "output"}) {
    %vX = ktdp.construct_memory_view %x, sizes: [3, 900000], strides: [900000, 1] {coordinate_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 899999 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3x900000xf16>
    %tX = ktdp.construct_access_tile %vX[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, access_tile_set = affine_set<(d0, d1) : (d0 >= 0, -d0 + 2 >= 0, d1 >= 0, -d1 + 899999 >= 0)>} : memref<3x900000xf16> -> !ktdp.access_tile<3x900000xindex>
    %X = ktdp.load %tX : <3x900000xindex> -> tensor<3x900000xf16>
    %z = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<3xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
    // expected-error @+1 {{'linalg.generic' op of tensor<14063x1x64xf16> is in a kernel that needs 3600640 bytes of scratchpad for two rows}}
    %h = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
        ins(%X : tensor<3x900000xf16>) outs(%f : tensor<3xf32>) {
    ^bb0(%a: f16, %o: f32):
      %w = arith.extf %a : f16 to f32
      %r = arith.addf %o, %w : f32
      linalg.yield %r : f32
    } -> tensor<3xf32>
    %vY = ktdp.construct_memory_view %y, sizes: [3], strides: [1] {coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<3xf32>
    %tY = ktdp.construct_access_tile %vY[0] {access_tile_order = affine_map<(d0) -> (d0)>, access_tile_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>} : memref<3xf32> -> !ktdp.access_tile<3xindex>
    ktdp.store %h, %tY : tensor<3xf32>, <3xindex>
    return
  }
}
