// Four tiles add 4 x 64 numbers, one row each.
// ktir-opt examples/add.mlir --ktir-canonicalize --cse
module {
  func.func @add(%x: index, %y: index, %out: index) attributes {grid = [4]} {
    %c0 = arith.constant 0 : index
    %t = ktdp.get_compute_tile_id : index
    %vx = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [64, 1]
        {coordinate_set = affine_set<(r, c) : (0 <= r, r <= 3, 0 <= c, c <= 63)>, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
    %vy = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1]
        {coordinate_set = affine_set<(r, c) : (0 <= r, r <= 3, 0 <= c, c <= 63)>, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
    %vo = ktdp.construct_memory_view %out, sizes: [4, 64], strides: [64, 1]
        {coordinate_set = affine_set<(r, c) : (0 <= r, r <= 3, 0 <= c, c <= 63)>, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
    %tx = ktdp.construct_access_tile %vx[%t, %c0]
        {access_tile_set = affine_set<(r, c) : (r == 0, 0 <= c, c <= 63)>, access_tile_order = affine_map<(r, c) -> (r, c)>} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
    %ty = ktdp.construct_access_tile %vy[%t, %c0]
        {access_tile_set = affine_set<(r, c) : (r == 0, 0 <= c, c <= 63)>, access_tile_order = affine_map<(r, c) -> (r, c)>} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
    %to = ktdp.construct_access_tile %vo[%t, %c0]
        {access_tile_set = affine_set<(r, c) : (r == 0, 0 <= c, c <= 63)>, access_tile_order = affine_map<(r, c) -> (r, c)>} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
    %a = ktdp.load %tx : <1x64xindex> -> tensor<1x64xf16>
    %b = ktdp.load %ty : <1x64xindex> -> tensor<1x64xf16>
    %s = arith.addf %a, %b : tensor<1x64xf16>
    ktdp.store %s, %to : tensor<1x64xf16>, <1x64xindex>
    return
  }
}
