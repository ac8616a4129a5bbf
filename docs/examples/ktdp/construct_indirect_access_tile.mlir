#box99x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 98 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#box8 = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id2 = affine_map<(d0, d1) -> (d0, d1)>
#box8x64 = affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 63 >= 0)>
func.func @embedding(%x: index, %r: index) {
  // Rows of a table, by number; each in reversed order of its halves.
  %table = ktdp.construct_memory_view %x, sizes: [99, 64], strides: [64, 1]
      {coordinate_set = #box99x64, memory_space = #ktdp.memory_space<global>} : memref<99x64xf16>
  %rows = ktdp.construct_memory_view %r, sizes: [8], strides: [1]
      {coordinate_set = #box8, memory_space = #ktdp.memory_space<global>} : memref<8xi32>
  %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %table[ind(%rows[%i]), ((%j + 32) mod 64)]
      {variables_space_order = #id2, variables_space_set = #box8x64} : memref<99x64xf16>, memref<8xi32> -> !ktdp.access_tile<8x64xindex>
  %a = ktdp.load %t : <8x64xindex> -> tensor<8x64xf16>
  return
}
