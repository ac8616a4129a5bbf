// C440: an op of a dialect that is no part of KTIR
// level: L2
// expected: error: dialect
// tags: f32, rules

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index) {
  %k0 = arith.constant 0 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %v_tile = ktdp.construct_access_tile %v_view[%k0]
      {access_tile_order = #id1, access_tile_set = #box4} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %v = ktdp.load %v_tile : <4xindex> -> tensor<4xf32>
  %s = vector.broadcast %k0 : index to vector<4xindex>
  return
}
