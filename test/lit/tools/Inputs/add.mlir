#box = affine_set<(r, c) : (0 <= r, r <= 3, 0 <= c, c <= 63)>
#row = affine_set<(r, c) : (r == 0, 0 <= c, c <= 63)>
#id = affine_map<(r, c) -> (r, c)>
func.func @add(%x: index, %y: index, %out: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %vx = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %vy = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %vo = ktdp.construct_memory_view %out, sizes: [4, 64], strides: [64, 1] {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4x64xf16>
  %c0 = arith.constant 0 : index
  %tx = ktdp.construct_access_tile %vx[%t, %c0] {access_tile_set = #row, access_tile_order = #id} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %ty = ktdp.construct_access_tile %vy[%t, %c0] {access_tile_set = #row, access_tile_order = #id} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %to = ktdp.construct_access_tile %vo[%t, %c0] {access_tile_set = #row, access_tile_order = #id} : memref<4x64xf16> -> !ktdp.access_tile<1x64xindex>
  %a = ktdp.load %tx : <1x64xindex> -> tensor<1x64xf16>
  // A line of its own: line numbers below stand in tests.
  %b = ktdp.load %ty : <1x64xindex> -> tensor<1x64xf16>
  %s = arith.addf %a, %b : tensor<1x64xf16>
  ktdp.store %s, %to : tensor<1x64xf16>, <1x64xindex>
  return
}
