// C222: each tile finds its scratchpad as it left it
// level: L3
// expected: values
// tags: f16, grid, programs, scratchpad, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
func.func @put(%x: index) attributes {grid = [4]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %lx = arith.constant 64 : index
  %v_view = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %lx_out_view = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local>} : memref<1xf16>
  %lx_out_tile = ktdp.construct_access_tile %lx_out_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %lx_out_tile : tensor<1xf16>, <1xindex>
  return
}
func.func @get(%y: index) attributes {grid = [4]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %lx = arith.constant 64 : index
  %v_view = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local>} : memref<1xf16>
  %v_tile = ktdp.construct_access_tile %v_view[%at0]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<1xf16> -> !ktdp.access_tile<1xindex>
  %v = ktdp.load %v_tile : <1xindex> -> tensor<1xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %v, %y_out_tile : tensor<1xf16>, <1xindex>
  return
}
func.func @main(%x: index, %y: index) {
  call @put(%x) : (index) -> ()
  call @get(%y) : (index) -> ()
  return
}
