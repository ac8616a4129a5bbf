// C343: scratchpads of other tiles through a distributed view
// level: L3
// expected: values
// tags: affine-subscripts, distributed, f16, grid, other-scratchpads, programs, scratchpad, tile-ids

#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
#box1 = affine_set<(d0) : (d0 >= 0, -d0 >= 0)>
#at1 = affine_set<(d0) : (d0 - 1 >= 0, -d0 + 1 >= 0)>
#at2 = affine_set<(d0) : (d0 - 2 >= 0, -d0 + 2 >= 0)>
#at3 = affine_set<(d0) : (d0 - 3 >= 0, -d0 + 3 >= 0)>
func.func @put(%x: index) attributes {grid = [4]} {
  %at0 = arith.constant 0 : index
  %t = ktdp.get_compute_tile_id : index
  %lx = arith.constant 0 : index
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
func.func @pull(%y: index) attributes {grid = [4]} {
  %t = ktdp.get_compute_tile_id : index
  %lx = arith.constant 0 : index
  %p0 = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #box1, memory_space = #ktdp.memory_space<ct_local, ct_id = 0>} : memref<1xf16>
  %p1 = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #at1, memory_space = #ktdp.memory_space<ct_local, ct_id = 1>} : memref<1xf16>
  %p2 = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #at2, memory_space = #ktdp.memory_space<ct_local, ct_id = 2>} : memref<1xf16>
  %p3 = ktdp.construct_memory_view %lx, sizes: [1], strides: [1]
      {coordinate_set = #at3, memory_space = #ktdp.memory_space<ct_local, ct_id = 3>} : memref<1xf16>
  %d = ktdp.construct_distributed_memory_view(%p0, %p1, %p2, %p3 : memref<1xf16>, memref<1xf16>, memref<1xf16>, memref<1xf16>) : memref<4xf16>
  %s = ktdp.construct_access_tile %d[-%t + 3]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %a = ktdp.load %s : <1xindex> -> tensor<1xf16>
  %y_out_view = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {coordinate_set = #box4, memory_space = #ktdp.memory_space<global>} : memref<4xf16>
  %y_out_tile = ktdp.construct_access_tile %y_out_view[%t]
      {access_tile_order = #id1, access_tile_set = #box1} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  ktdp.store %a, %y_out_tile : tensor<1xf16>, <1xindex>
  return
}
func.func @main(%x: index, %y: index) {
  call @put(%x) : (index) -> ()
  call @pull(%y) : (index) -> ()
  return
}
