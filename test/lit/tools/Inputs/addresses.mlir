#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 5 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#row = affine_set<(d0, d1) : (d0 >= 0, -d0 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#same = affine_map<(d0, d1) -> (d0, d1)>
func.func @doubled() attributes {grid = [2 : index, 3 : index]} {
  %a = arith.constant 1024 : index
  %b = arith.constant 4096 : index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %id:2 = ktdp.get_compute_tile_id : index, index
  %above = arith.muli %id#0, %c3 : index
  %row = arith.addi %above, %id#1 : index
  %av = ktdp.construct_memory_view %a, sizes: [6, 64], strides: [64, 1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<6x64xf16>
  %bv = ktdp.construct_memory_view %b, sizes: [6, 64], strides: [64, 1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<6x64xf16>
  %at = ktdp.construct_access_tile %av[%row, %c0]
      {access_tile_set = #row, access_tile_order = #same} : memref<6x64xf16> -> !ktdp.access_tile<1x64xindex>
  %v = ktdp.load %at : !ktdp.access_tile<1x64xindex> -> tensor<1x64xf16>
  %e = tensor.empty() : tensor<1x64xf16>
  %s = linalg.add ins(%v, %v : tensor<1x64xf16>, tensor<1x64xf16>) outs(%e : tensor<1x64xf16>) -> tensor<1x64xf16>
  %bt = ktdp.construct_access_tile %bv[%row, %c0]
      {access_tile_set = #row, access_tile_order = #same} : memref<6x64xf16> -> !ktdp.access_tile<1x64xindex>
  ktdp.store %s, %bt : tensor<1x64xf16>, !ktdp.access_tile<1x64xindex>
  return
}
